"""The commands of `tocsin`, one file each. They parse, call, and print; what they do is elsewhere."""
