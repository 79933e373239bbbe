/* Stands in for ROCm SMI: one GPU, busy by 40 percent, which uses 2 GiB of its memory. */
#include <stdint.h>

int rsmi_init(uint64_t flags)
{
    return flags != 0;
}

int rsmi_dev_busy_percent_get(uint32_t index, uint32_t *percent)
{
    *percent = 40;
    return index > 0;
}

int rsmi_dev_memory_usage_get(uint32_t index, int type, uint64_t *used)
{
    *used = type == 0 ? 2ULL << 30 : 1;
    return index > 0;
}
