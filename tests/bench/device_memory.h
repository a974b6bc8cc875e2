/* device_memory.h: how much of the device's memory is in use, whoever asked for it. */
#ifndef BENCH_DEVICE_MEMORY_H
#define BENCH_DEVICE_MEMORY_H

#include <atomic>
#include <cstddef>
#include <thread>

/* Looks every half millisecond, by NVML, which no pool and no preloaded library answers for. */
class memory_watch
{
  public:
    memory_watch();
    ~memory_watch();
    /* The most so far above what it was at first; 0 where NVML is missing. */
    size_t peak_bytes() const;

  private:
    std::atomic<size_t> most{0};
    std::atomic<bool> stop{false};
    size_t first;
    std::thread watcher;
};

#endif
