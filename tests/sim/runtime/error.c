/* The runtime's error codes: the last one of a thread, their names and texts.
 * Runtime and driver share their numbers, so a CUresult becomes a cudaError_t by a cast. */
#include "mini.h"

/* last: what cudaGetLastError returns and clears. context: a failure that destroyed the context and
 * is reported until the device is reset. */
static _Thread_local cudaError_t last;
static cudaError_t context_error;

static bool destroys_context(cudaError_t error)
{
    switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
        return true;
    default:
        return false;
    }
}

cudaError_t mr_finish(cudaError_t error)
{
    if (error != cudaSuccess) {
        last = error;
        if (destroys_context(error))
            __atomic_store_n(&context_error, error, __ATOMIC_RELAXED);
    }
    return error;
}

void mr_forget_error(void)
{
    __atomic_store_n(&context_error, cudaSuccess, __ATOMIC_RELAXED);
    last = cudaSuccess;
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t lasting = __atomic_load_n(&context_error, __ATOMIC_RELAXED);
    return lasting != cudaSuccess ? lasting : last;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = cudaPeekAtLastError();
    last = cudaSuccess;
    return error;
}

/* The codes that programs and tests meet; every other one is "unrecognized error code". */
#define ERRORS(E)                     \
    E(InvalidValue)                   \
    E(MemoryAllocation)               \
    E(InitializationError)            \
    E(CudartUnloading)                \
    E(InvalidConfiguration)           \
    E(InvalidPitchValue)              \
    E(InvalidSymbol)                  \
    E(InvalidHostPointer)             \
    E(InvalidDevicePointer)           \
    E(InvalidMemcpyDirection)         \
    E(InsufficientDriver)             \
    E(CallRequiresNewerDriver)        \
    E(DevicesUnavailable)             \
    E(InvalidDeviceFunction)          \
    E(NoDevice)                       \
    E(InvalidDevice)                  \
    E(SoftwareValidityNotEstablished) \
    E(InvalidKernelImage)             \
    E(DeviceUninitialized)            \
    E(NoKernelImageForDevice)         \
    E(ECCUncorrectable)               \
    E(UnsupportedLimit)               \
    E(PeerAccessUnsupported)          \
    E(InvalidPtx)                     \
    E(InvalidSource)                  \
    E(FileNotFound)                   \
    E(SharedObjectInitFailed)         \
    E(OperatingSystem)                \
    E(InvalidResourceHandle)          \
    E(IllegalState)                   \
    E(SymbolNotFound)                 \
    E(NotReady)                       \
    E(IllegalAddress)                 \
    E(LaunchOutOfResources)           \
    E(LaunchTimeout)                  \
    E(PeerAccessAlreadyEnabled)       \
    E(PeerAccessNotEnabled)           \
    E(SetOnActiveProcess)             \
    E(ContextIsDestroyed)             \
    E(Assert)                         \
    E(TooManyPeers)                   \
    E(HostMemoryAlreadyRegistered)    \
    E(HostMemoryNotRegistered)        \
    E(HardwareStackError)             \
    E(IllegalInstruction)             \
    E(MisalignedAddress)              \
    E(InvalidAddressSpace)            \
    E(InvalidPc)                      \
    E(LaunchFailure)                  \
    E(CooperativeLaunchTooLarge)      \
    E(NotPermitted)                   \
    E(NotSupported)                   \
    E(SystemNotReady)                 \
    E(StreamCaptureUnsupported)       \
    E(StreamCaptureInvalidated)       \
    E(StreamCaptureMerge)             \
    E(StreamCaptureUnmatched)         \
    E(StreamCaptureUnjoined)          \
    E(StreamCaptureIsolation)         \
    E(StreamCaptureImplicit)          \
    E(CapturedEvent)                  \
    E(StreamCaptureWrongThread)       \
    E(Timeout)                        \
    E(GraphExecUpdateFailure)         \
    E(Unknown)

const char *cudaGetErrorName(cudaError_t error)
{
    switch ((int)error) {
    case cudaSuccess:
        return "cudaSuccess";
#define NAME(e)        \
    case cudaError##e: \
        return "cudaError" #e;
        ERRORS(NAME)
#undef NAME
    default:
        return "unrecognized error code";
    }
}

const char *cudaGetErrorString(cudaError_t error)
{
    const char *text = NULL;
    if (mr_driver_load() == cudaSuccess &&
        DRV(GetErrorString, 6000)((CUresult)error, &text) == CUDA_SUCCESS && text != NULL) {
        return text;
    }
    return cudaGetErrorName(error);
}
