/* The kernels that the driver-API programs load from a file. */
extern "C" __global__ void scale(unsigned *words, unsigned n, unsigned factor)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        words[i] = words[i] * factor + i;
}

extern "C" __global__ void late_set(unsigned *words, unsigned n, unsigned value,
                                    unsigned long long ns)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < ns);
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        words[i] = value;
}
