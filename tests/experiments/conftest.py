"""The experiments are outside the wheel: put the folder above them on the path, however pytest was started."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
