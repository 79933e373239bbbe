/* prterun 3.0 with --dvm uses a list of signals that nobody has made: open the framework that makes it, first. */
#define _GNU_SOURCE
#include <dlfcn.h>

int prte_ess_base_setup_signals(char *names)
{
    int (*open)(void *, int) = dlsym(RTLD_DEFAULT, "pmix_mca_base_framework_open");
    int (*setup)(char *) = dlsym(RTLD_NEXT, "prte_ess_base_setup_signals");

    open(dlsym(RTLD_DEFAULT, "prte_ess_base_framework"), 0);
    return setup(names);
}
