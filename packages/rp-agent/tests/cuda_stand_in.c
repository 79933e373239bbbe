/* The functions of libcuda.so.1 that rp-synthetic calls, for machines without a GPU: they keep count, and fill memory
 * of the host. As many GPUs as STAND_IN_GPUS says; what was done goes to standard error when the program ends. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int devices[64], current;
static long fills, synchronised;

static void tell(void)
{
    fprintf(stderr, "fills=%ld synchronised=%d\n", fills, synchronised == fills);
}

int cuInit(unsigned flags)
{
    static int known;
    if (!known++)
        atexit(tell);
    return flags != 0;
}

int cuDeviceGetCount(int *count)
{
    *count = atoi(getenv("STAND_IN_GPUS"));
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    devices[device] = device + 1;
    *context = &devices[device];
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    current = *(int *)context;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    if (!current)
        return 201;
    if (getenv("STAND_IN_FULL"))
        return 2;
    *address = (uint64_t)(uintptr_t)malloc(size);
    return 0;
}

int cuMemsetD32_v2(uint64_t address, unsigned value, size_t count)
{
    ((volatile uint32_t *)(uintptr_t)address)[count - 1] = value;
    fills++;
    return 0;
}

int cuCtxSynchronize(void)
{
    synchronised = fills;
    return 0;
}

int cuGetErrorString(int code, const char **text)
{
    *text = code == 2 ? "out of memory" : "another error";
    return 0;
}
