/* Asks NVML for the memory in use: see device_memory.h. It is loaded as it is needed, for it comes
 * with the driver, and the simulated one has none. */
#include "tests/bench/device_memory.h"

#include <algorithm>
#include <chrono>
#include <dlfcn.h>

/* As in nvml.h, which not every toolkit has. All functions return 0 for success. */
struct nvml_memory {
    unsigned long long total, free, used;
};

static struct nvml {
    int (*init)();
    int (*handle_of)(unsigned index, void **ret_device);
    int (*memory_of)(void *device, nvml_memory *ret_memory);
    void *device = nullptr;
    bool is_there;

    nvml()
    {
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        if (!library)
            library = RTLD_DEFAULT;
        *(void **)&init = dlsym(library, "nvmlInit_v2");
        *(void **)&handle_of = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
        *(void **)&memory_of = dlsym(library, "nvmlDeviceGetMemoryInfo");
        is_there = init && handle_of && memory_of && !init() && !handle_of(0, &device);
    }
} nvml;

static size_t used_bytes()
{
    nvml_memory memory;
    return nvml.is_there && !nvml.memory_of(nvml.device, &memory) ? memory.used : 0;
}

memory_watch::memory_watch()
    : first(used_bytes()), watcher([this] {
          while (!stop) {
              most = std::max(most.load(), used_bytes());
              std::this_thread::sleep_for(std::chrono::microseconds(500));
          }
      })
{
}

memory_watch::~memory_watch()
{
    stop = true;
    watcher.join();
}

size_t memory_watch::peak_bytes() const
{
    return most > first ? most - first : 0;
}
