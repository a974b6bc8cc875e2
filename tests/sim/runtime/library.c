/* Device code that the program loads at run time. */
#include "mini.h"

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code,
                                enum cudaJitOption *jitOptions, void **jitOptionsValues,
                                unsigned numJitOptions, enum cudaLibraryOption *libraryOptions,
                                void **libraryOptionValues, unsigned numLibraryOptions)
{
    return MR_RUN(DRV(LibraryLoadData, 12000)(
        library, code, (CUjit_option *)jitOptions, jitOptionsValues, numJitOptions,
        (CUlibraryOption *)libraryOptions, libraryOptionValues, numLibraryOptions));
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *fileName,
                                    enum cudaJitOption *jitOptions, void **jitOptionsValues,
                                    unsigned numJitOptions, enum cudaLibraryOption *libraryOptions,
                                    void **libraryOptionValues, unsigned numLibraryOptions)
{
    return MR_RUN(DRV(LibraryLoadFromFile, 12000)(
        library, fileName, (CUjit_option *)jitOptions, jitOptionsValues, numJitOptions,
        (CUlibraryOption *)libraryOptions, libraryOptionValues, numLibraryOptions));
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    return MR_RUN(DRV(LibraryUnload, 12000)(library));
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *pKernel, cudaLibrary_t library, const char *name)
{
    return MR_RUN(mr_library_kernel(library, name, pKernel));
}

cudaError_t cudaLibraryGetGlobal(void **dptr, size_t *bytes, cudaLibrary_t library,
                                 const char *name)
{
    return MR_RUN(DRV(LibraryGetGlobal, 12000)((CUdeviceptr *)dptr, bytes, library, name));
}

cudaError_t cudaLibraryGetManaged(void **dptr, size_t *bytes, cudaLibrary_t library,
                                  const char *name)
{
    return MR_RUN(DRV(LibraryGetManaged, 12000)((CUdeviceptr *)dptr, bytes, library, name));
}

cudaError_t cudaLibraryGetKernelCount(unsigned *count, cudaLibrary_t lib)
{
    return MR_RUN(DRV(LibraryGetKernelCount, 12040)(count, lib));
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned numKernels,
                                        cudaLibrary_t lib)
{
    return MR_RUN(DRV(LibraryEnumerateKernels, 12040)(kernels, numKernels, lib));
}
