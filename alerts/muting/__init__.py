"""When nobody is told: silences, maintenance windows, quiet hours. Pure functions of what is configured and the time."""
