"""How decisions treat groups: exactly, for those who may see the attribute, or privately measured."""
