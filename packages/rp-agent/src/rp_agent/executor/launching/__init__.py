"""How a task is launched, without launching it: plan, environment, scripts, the command line of the launcher.

Here ranks are bound to cores and GPUs (`job`, `rank_script`), and `outcome` explains exit codes. Imports launch
methods.
"""
