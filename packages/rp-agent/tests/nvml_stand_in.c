/* Stands in for NVML: two GPUs, busy by 25 and 75 percent, which use 1 and 3 GiB; the second one has a UUID, too. */
#include <string.h>

static int gpus[2] = {0, 1};

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = gpus + index % 2;
    return index < 2 ? 0 : 2;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = gpus + 1;
    return strcmp(uuid, "GPU-1234") != 0;
}

int nvmlDeviceGetUtilizationRates(void *device, struct { unsigned gpu, memory; } *rates)
{
    rates->gpu = 25 + 50 * *(int *)device;
    rates->memory = 99;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct { unsigned long long total, free, used; } *memory)
{
    memory->used = (1ULL + 2 * *(int *)device) << 30;
    memory->total = 80ULL << 30;
    memory->free = memory->total - memory->used;
    return 0;
}
