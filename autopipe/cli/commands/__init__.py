"""The sub-commands, one file each: a function with the module's name. Modules import little; functions import the rest."""
