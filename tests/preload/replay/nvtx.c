/* Every way NVTX has of saying that a range begins or that something happened, and of naming a
 * stream; what it answers. Built against NVIDIA's headers (NVTX_HEADERS) or against our own
 * likeness of them. */
#ifdef NVTX_HEADERS
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCuda.h>
#include <nvtx3/nvToolsExtCudaRt.h>
#else
#include "tests/preload/replay/nvtx_own.h"
#endif

#include <string.h>

#include "tests/common/say.h"

#ifdef NVTX_HEADERS
#include "interpose/hooks/nvtx/nvtx_abi.h"

/* What our library believes of NVTX is what the headers say. */
#define SAME(a, b) _Static_assert((a) == (b), #a " is not " #b)
SAME(sizeof(struct ag_nvtx_event), sizeof(nvtxEventAttributes_t));
SAME(offsetof(struct ag_nvtx_event, size), offsetof(nvtxEventAttributes_t, size));
SAME(offsetof(struct ag_nvtx_event, message_type), offsetof(nvtxEventAttributes_t, messageType));
SAME(offsetof(struct ag_nvtx_event, message), offsetof(nvtxEventAttributes_t, message));
SAME(sizeof(struct ag_nvtx_resource), sizeof(nvtxResourceAttributes_t));
SAME(offsetof(struct ag_nvtx_resource, type), offsetof(nvtxResourceAttributes_t, identifierType));
SAME(offsetof(struct ag_nvtx_resource, identifier), offsetof(nvtxResourceAttributes_t, identifier));
SAME(offsetof(struct ag_nvtx_resource, message_type),
     offsetof(nvtxResourceAttributes_t, messageType));
SAME(offsetof(struct ag_nvtx_resource, message), offsetof(nvtxResourceAttributes_t, message));
SAME((int)AG_NVTX_MESSAGE_ASCII, (int)NVTX_MESSAGE_TYPE_ASCII);
SAME((int)AG_NVTX_MESSAGE_UNICODE, (int)NVTX_MESSAGE_TYPE_UNICODE);
SAME((int)AG_NVTX_MESSAGE_REGISTERED, (int)NVTX_MESSAGE_TYPE_REGISTERED);
SAME((int)AG_NVTX_RESOURCE_CU_STREAM, (int)NVTX_RESOURCE_TYPE_CUDA_STREAM);
SAME((int)AG_NVTX_RESOURCE_CUDA_STREAM, (int)NVTX_RESOURCE_TYPE_CUDART_STREAM);
SAME(AG_NVTX_NO_TRACKING, NVTX_NO_PUSH_POP_TRACKING);
SAME((int)AG_NVTX_CORE, (int)NVTX_CB_MODULE_CORE);
SAME((int)AG_NVTX_CUDA, (int)NVTX_CB_MODULE_CUDA);
SAME((int)AG_NVTX_CUDART, (int)NVTX_CB_MODULE_CUDART);
SAME((int)AG_NVTX_CORE2, (int)NVTX_CB_MODULE_CORE2);
SAME((int)AG_NVTX_MARK_EX, (int)NVTX_CBID_CORE_MarkEx);
SAME((int)AG_NVTX_MARK_W, (int)NVTX_CBID_CORE_MarkW);
SAME((int)AG_NVTX_RANGE_START_EX, (int)NVTX_CBID_CORE_RangeStartEx);
SAME((int)AG_NVTX_RANGE_START_W, (int)NVTX_CBID_CORE_RangeStartW);
SAME((int)AG_NVTX_RANGE_PUSH_EX, (int)NVTX_CBID_CORE_RangePushEx);
SAME((int)AG_NVTX_RANGE_PUSH_W, (int)NVTX_CBID_CORE_RangePushW);
SAME((int)AG_NVTX_DOMAIN_MARK_EX, (int)NVTX_CBID_CORE2_DomainMarkEx);
SAME((int)AG_NVTX_DOMAIN_RANGE_START_EX, (int)NVTX_CBID_CORE2_DomainRangeStartEx);
SAME((int)AG_NVTX_DOMAIN_RANGE_PUSH_EX, (int)NVTX_CBID_CORE2_DomainRangePushEx);
SAME((int)AG_NVTX_DOMAIN_RESOURCE_CREATE, (int)NVTX_CBID_CORE2_DomainResourceCreate);
SAME((int)AG_NVTX_DOMAIN_REGISTER_STRING_A, (int)NVTX_CBID_CORE2_DomainRegisterStringA);
SAME((int)AG_NVTX_DOMAIN_REGISTER_STRING_W, (int)NVTX_CBID_CORE2_DomainRegisterStringW);
SAME((int)AG_NVTX_DOMAIN_CREATE_A, (int)NVTX_CBID_CORE2_DomainCreateA);
SAME((int)AG_NVTX_DOMAIN_CREATE_W, (int)NVTX_CBID_CORE2_DomainCreateW);
SAME((int)AG_NVTX_NAME_CU_STREAM_A, (int)NVTX_CBID_CUDA_NameCuStreamA);
SAME((int)AG_NVTX_NAME_CU_STREAM_W, (int)NVTX_CBID_CUDA_NameCuStreamW);
SAME((int)AG_NVTX_NAME_CUDA_STREAM_A, (int)NVTX_CBID_CUDART_NameCudaStreamA);
SAME((int)AG_NVTX_NAME_CUDA_STREAM_W, (int)NVTX_CBID_CUDART_NameCudaStreamW);
SAME(sizeof(struct ag_nvtx_callbacks), sizeof(NvtxExportTableCallbacks));
SAME(offsetof(struct ag_nvtx_callbacks, get_table),
     offsetof(NvtxExportTableCallbacks, GetModuleFunctionTable));
#endif

static nvtxEventAttributes_t event(int type)
{
    return (nvtxEventAttributes_t){
        .version = NVTX_VERSION, .size = sizeof(nvtxEventAttributes_t), .messageType = type};
}

static nvtxEventAttributes_t narrow(const char *name)
{
    nvtxEventAttributes_t e = event(NVTX_MESSAGE_TYPE_ASCII);

    e.message.ascii = name;
    return e;
}

static nvtxEventAttributes_t wide(const wchar_t *name)
{
    nvtxEventAttributes_t e = event(NVTX_MESSAGE_TYPE_UNICODE);

    e.message.unicode = name;
    return e;
}

static nvtxEventAttributes_t registered(nvtxStringHandle_t name)
{
    nvtxEventAttributes_t e = event(NVTX_MESSAGE_TYPE_REGISTERED);

    e.message.registered = name;
    return e;
}

/* Nine times in the default domain. */
static void say_all(const char *name, const wchar_t *wide_name)
{
    nvtxEventAttributes_t a = narrow(name), w = wide(wide_name);

    nvtxMarkA(name);
    nvtxMarkW(wide_name);
    nvtxMarkEx(&a);
    say("start: %llu %llu %llu", (unsigned long long)nvtxRangeStartA(name),
        (unsigned long long)nvtxRangeStartW(wide_name), (unsigned long long)nvtxRangeStartEx(&w));
    say("push: %d %d %d", nvtxRangePushA(name), nvtxRangePushW(wide_name), nvtxRangePushEx(&a));
}

/* Five times in that domain: three ways to begin, two kinds of registered strings. */
static void say_in(nvtxDomainHandle_t domain, const char *name, const wchar_t *wide_name)
{
    nvtxEventAttributes_t a = narrow(name), w = wide(wide_name);
    nvtxEventAttributes_t ra = registered(nvtxDomainRegisterStringA(domain, name));
    nvtxEventAttributes_t rw = registered(nvtxDomainRegisterStringW(domain, wide_name));

    nvtxDomainMarkEx(domain, &a);
    nvtxDomainMarkEx(domain, &ra);
    say("start: %llu", (unsigned long long)nvtxDomainRangeStartEx(domain, &w));
    say("push: %d %d", nvtxDomainRangePushEx(domain, &rw), nvtxDomainRangePushEx(domain, &a));
}

/* What no program should do, and no injection may fall over. */
static void say_nonsense(nvtxDomainHandle_t domain)
{
    nvtxEventAttributes_t none = event(0), empty = narrow(NULL), small = narrow("step"), lost;

    small.size = 8;
    lost = registered(NULL);
    nvtxMarkA(NULL);
    nvtxMarkW(NULL);
    nvtxMarkEx(NULL);
    nvtxMarkEx(&none);
    nvtxMarkEx(&empty);
    nvtxMarkEx(&small);
    nvtxMarkEx(&lost);
    empty = wide(NULL);
    nvtxDomainMarkEx(domain, &empty);
    nvtxDomainMarkEx(NULL, NULL);
    (void)nvtxDomainCreateA(NULL);
    (void)nvtxDomainRegisterStringA(domain, NULL);
    (void)nvtxDomainRegisterStringW(domain, NULL);
    nvtxNameCuStreamA((CUstream)0x77000, NULL);
    nvtxNameCuStreamW((CUstream)0x77000, NULL);
}

static void say_ranges(void)
{
    static wchar_t long_name[5000];
    nvtxDomainHandle_t one = nvtxDomainCreateA("Lib"), other = nvtxDomainCreateW(L"Other \u00e9");

    say_all("step", L"step");
    say_all("other", L"other");
    say_in(NULL, "step", L"step");
    say_in(one, "step", L"step");
    say_in(other, "step", L"step");
    say_in(one, "steps", L"steps");
    nvtxMarkA("Schritt \u00fc \u20ac \U0001f600");
    nvtxMarkW(L"Schritt \u00fc \u20ac \U0001f600");
    say_nonsense(one);
    wmemset(long_name, L'\u20ac', 4999);
    nvtxMarkW(long_name);
}

#ifdef WITH_DRIVER
#include "tests/common/device.h"

/* Streams named in every way, before and behind their first work. */
static void name_streams(void)
{
    nvtxResourceAttributes_t resource = {.version = NVTX_VERSION, .size = sizeof(resource)};
    CUstream stream[6];

    for (unsigned i = 0; i < 6; i++)
        OK(cuStreamCreate(&stream[i], CU_STREAM_NON_BLOCKING));
    nvtxNameCuStreamA(stream[0], "train a");
    nvtxNameCuStreamW(stream[1], L"train w");
    nvtxNameCudaStreamA((void *)stream[2], "train rt a");
    nvtxNameCudaStreamW((void *)stream[3], L"train rt w");
    resource.identifierType = NVTX_RESOURCE_TYPE_CUDA_STREAM;
    memcpy(&resource.identifier, &stream[4], sizeof(stream[4]));
    resource.messageType = NVTX_MESSAGE_TYPE_ASCII;
    resource.message.ascii = "train resource";
    say("resource: %d", nvtxDomainResourceCreate(NULL, &resource) != NULL);
    nvtxNameCuStreamA(stream[5], "validate");
    for (unsigned i = 0; i < 6; i++) {
        launch_speak(stream[i], i);
        OK(cuStreamSynchronize(stream[i]));
    }
    for (unsigned i = 0; i < 6; i++)
        OK(cuStreamDestroy(stream[i]));
}

enum { FILLS = 10, WORDS = 1000 };

static void fill_half(CUstream stream, CUdeviceptr p, uint32_t first)
{
    for (uint32_t i = 0; i < FILLS / 2; i++)
        launch_fill(stream, p, WORDS, first + i);
}

/* Iterations of eleven fills, of which a range says where they begin, and nobody waits. */
static void go_iteration(void)
{
    CUstream stream;
    CUdeviceptr p;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, WORDS * 4));
    for (uint32_t iteration = 0; iteration < 60; iteration++) {
        nvtxRangePushA("step");
        launch_fill(stream, p, WORDS, iteration);
        fill_half(stream, p, 0);
        fill_half(stream, p, iteration);
    }
    OK(cuStreamSynchronize(stream));
    say("%u wrong", count_wrong(p, WORDS, 59 + FILLS / 2 - 1));
    OK(cuMemFree(p));
    OK(cuStreamDestroy(stream));
}

/* A stream loses its name amid an iteration that repeats, and gets it back: the last kernel's words
 * stay. */
static void rename_stream(void)
{
    CUstream stream;
    CUdeviceptr p;

    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuMemAlloc(&p, WORDS * 4));
    for (uint32_t iteration = 0; iteration < 30; iteration++) {
        nvtxNameCuStreamA(stream, "train");
        fill_half(stream, p, iteration * 100);
        if (iteration % 10 == 9)
            nvtxNameCuStreamA(stream, "x");
        fill_half(stream, p, iteration * 100 + 50);
        OK(cuStreamSynchronize(stream));
        say("iteration %u: %u wrong", iteration,
            count_wrong(p, WORDS, iteration * 100 + 50 + FILLS / 2 - 1));
    }
    OK(cuMemFree(p));
    OK(cuStreamDestroy(stream));
}
#endif

int main(int argc, char **argv)
{
    (void)argc;
    (void)argv;
#ifdef WITH_DRIVER
    if (argc > 1 && strcmp(argv[1], "again")) {
        (void)device_open();
        if (!strcmp(argv[1], "iteration"))
            go_iteration();
        else
            rename_stream();
        return 0;
    }
#endif
    say_ranges();
#ifdef WITH_DRIVER /* what comes now is under our hooks */
    (void)device_open();
    name_streams();
    if (argc > 1 && !strcmp(argv[1], "again"))
        say_ranges();
#endif
    return 0;
}
