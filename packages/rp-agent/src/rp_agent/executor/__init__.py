"""Running tasks: what is to be run (plan, script, environment), doing it (starter, launchloop), the component."""
