"""Launch plans of tasks: processes, environment, scripts and launcher command line, without starting anything.

`launched` and `rank_script` bind ranks to cores and GPUs, `outcome` explains exit codes. May import launch methods.
"""
