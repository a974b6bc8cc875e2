/* Reads traces: see trace.h. */
#include "tests/bench/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <unordered_map>

static const char header[] = "Thread,Time,Action,Pointer,Size,Stream";

struct row {
    std::string thread, time, action, pointer, size, stream;
};

struct reader {
    trace it{};
    size_t live_bytes = 0;
    std::unordered_map<std::string, std::pair<unsigned, size_t>> live; /* of a pointer */
    std::unordered_map<std::string, unsigned> streams;

    unsigned stream_of(const std::string &name)
    {
        return streams.try_emplace(name, (unsigned)streams.size()).first->second;
    }
    void allocated(const row &r, size_t bytes)
    {
        live[r.pointer] = {it.n_blocks, bytes};
        it.steps.push_back({bytes, it.n_blocks++, stream_of(r.stream), false});
        live_bytes += bytes;
        it.peak_bytes = std::max(it.peak_bytes, live_bytes);
    }
    void freed(const row &r)
    {
        auto found = live.find(r.pointer);
        if (found == live.end())
            return;
        auto [block, bytes] = found->second;
        it.steps.push_back({bytes, block, stream_of(r.stream), true});
        live_bytes -= bytes;
        live.erase(found);
    }
};

[[noreturn]] static void refuse(const std::string &path, size_t line, const char *why)
{
    fprintf(stderr, "%s:%zu: %s\n", path.c_str(), line, why);
    exit(2);
}

static bool split(const std::string &line, row &r)
{
    std::istringstream fields(line);
    for (std::string *field : {&r.thread, &r.time, &r.action, &r.pointer, &r.size, &r.stream})
        if (!std::getline(fields, *field, ','))
            return false;
    return true;
}

trace read_trace(const std::string &path)
{
    std::ifstream file(path);
    reader reader;
    std::string line;
    row r;
    if (!std::getline(file, line) || line != header)
        refuse(path, 1, file ? "the first line is not that of an RMM log" : strerror(errno));
    for (size_t n = 2; std::getline(file, line); n++) {
        char *end;
        if (!split(line, r))
            refuse(path, n, "there are fewer than six columns");
        errno = 0;
        size_t bytes = strtoull(r.size.c_str(), &end, 10);
        if (errno || *end || end == r.size.c_str())
            refuse(path, n, "the size is not a number of bytes");
        if (r.action == "allocate")
            reader.allocated(r, bytes);
        else if (r.action == "free")
            reader.freed(r);
        else if (r.action != "allocate failure")
            refuse(path, n, "the action is not allocate, free or allocate failure");
    }
    reader.it.n_streams = (unsigned)reader.streams.size();
    return std::move(reader.it);
}
