/*
 * A card that several share:
 *   wander SEED TURNS MIB   a random program of so many MiB: blocks that come and go on three
 *                           streams, kernels, copies, fills, graphs. What it prints depends on the
 *                           words alone
 *   fill SEED LEAST MORE    another process: plain memory comes and goes until only LEAST MiB are
 *                           free, or as many as MORE MiB more. Until standard input ends
 */
#include "tests/gpu/check.h"
#include "tests/gpu/paging/kernels.h"

#include <poll.h>
#include <unistd.h>

#include <random>
#include <vector>

static const int grid = 132 * 4, n_streams = 3;
static const size_t most_block = 160 * MIB, staging_bytes = 24 * MIB;

struct block {
    uint4 *words;
    size_t bytes;
    int stream; /* of its last use */
};

class wanderer
{
  public:
    wanderer(unsigned seed, size_t most_bytes) : random(seed), most(most_bytes)
    {
        for (cudaStream_t &stream : streams)
            OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        OK(cudaMalloc(&sum, sizeof *sum));
        OK(cudaMemset(sum, 0, sizeof *sum));
        OK(cudaMallocHost(&pinned, staging_bytes));
        pageable.resize(staging_bytes);
        for (size_t i = 0; i < staging_bytes; i++)
            pageable[i] = pinned[i] = (unsigned char)(i * 13 + (i >> 8));
    }

    void turn()
    {
        static void (wanderer::*const ways[])() = {
            &wanderer::allocate, &wanderer::allocate, &wanderer::release,  &wanderer::change,
            &wanderer::change,   &wanderer::change,   &wanderer::look,     &wanderer::copy_within,
            &wanderer::set,      &wanderer::upload,   &wanderer::download, &wanderer::change_hidden,
            &wanderer::launch,   &wanderer::rest,
        };
        if (blocks.size() < 2)
            allocate();
        else
            (this->*ways[below(sizeof ways / sizeof *ways)])();
    }

    void finish()
    {
        for (block &one : blocks) {
            read(one);
            print_sum("block");
        }
        while (!blocks.empty())
            release();
    }

  private:
    std::mt19937 random;
    size_t most, has = 0;
    std::vector<block> blocks;
    std::vector<unsigned char> pageable;
    unsigned char *pinned;
    cudaStream_t streams[n_streams];
    cudaEvent_t event;
    unsigned long long *sum;

    size_t below(size_t n)
    {
        return random() % n;
    }
    block &any()
    {
        return blocks[below(blocks.size())];
    }
    static size_t words_of(const block &one)
    {
        return one.bytes / sizeof(uint4);
    }

    /* The stream comes after what was submitted for the block. */
    cudaStream_t after(block &one, int stream)
    {
        if (one.stream != stream) {
            OK(cudaEventRecord(event, streams[one.stream]));
            OK(cudaStreamWaitEvent(streams[stream], event, 0));
        }
        one.stream = stream;
        return streams[stream];
    }

    cudaStream_t after(block &one)
    {
        return after(one, (int)below(n_streams));
    }

    void allocate()
    {
        block one = {nullptr, 64 * KIB + below(most_block) / 256 * 256, 0};
        if (has + one.bytes > most) {
            release();
            return;
        }
        OK(cudaMalloc(&one.words, one.bytes));
        has += one.bytes;
        blocks.push_back(one);
        fill<<<grid, 256, 0, streams[0]>>>(one.words, words_of(one), (unsigned)random());
    }

    void release()
    {
        size_t i = below(blocks.size());
        OK(cudaFree(blocks[i].words));
        has -= blocks[i].bytes;
        blocks.erase(blocks.begin() + (ptrdiff_t)i);
    }

    void change()
    {
        block &one = any();
        cudaStream_t stream = after(one);
        for (size_t k = 1 + below(6); k; k--)
            mix<<<grid, 256, 0, stream>>>(one.words, words_of(one));
    }

    void read(block &one)
    {
        read_all<<<grid, 256, 0, after(one)>>>(one.words, words_of(one), sum);
    }

    void look()
    {
        read(any());
    }

    void copy_within()
    {
        block &to = any(), &from = any();
        size_t bytes = 1 + below((to.bytes < from.bytes ? to.bytes : from.bytes) / 2);
        int stream = (int)below(n_streams);
        after(from, stream);
        OK(cudaMemcpyAsync((char *)to.words + to.bytes - bytes, from.words, bytes,
                           cudaMemcpyDeviceToDevice, after(to, stream)));
    }

    void set()
    {
        block &one = any();
        size_t bytes = 1 + below(one.bytes), offset = below(one.bytes - bytes + 1);
        OK(cudaMemsetAsync((char *)one.words + offset, (int)below(256), bytes, after(one)));
    }

    void upload()
    {
        block &one = any();
        size_t bytes = 1 + below(one.bytes < staging_bytes ? one.bytes : staging_bytes);
        size_t offset = below(one.bytes - bytes + 1);
        const unsigned char *from = below(2) ? pinned : pageable.data();
        OK(cudaMemcpyAsync((char *)one.words + offset, from, bytes, cudaMemcpyHostToDevice,
                           after(one)));
    }

    void download()
    {
        block &one = any();
        size_t bytes = 1 + below(one.bytes < staging_bytes ? one.bytes : staging_bytes);
        size_t offset = below(one.bytes - bytes + 1);
        unsigned long long s = 0;
        std::vector<unsigned char> to(bytes);
        OK(cudaMemcpyAsync(to.data(), (char *)one.words + offset, bytes, cudaMemcpyDeviceToHost,
                           after(one)));
        OK(cudaStreamSynchronize(streams[one.stream]));
        for (size_t i = 0; i < bytes; i += 61)
            s = s * 31 + to[i];
        printf("host %llx\n", s);
    }

    /* The address stands in memory of the device alone. */
    void change_hidden()
    {
        block &one = any();
        cudaStream_t stream = after(one);
        uint4 **table;
        OK(cudaMalloc(&table, sizeof *table));
        OK(cudaMemcpyAsync(table, &one.words, sizeof *table, cudaMemcpyHostToDevice, stream));
        mix_hidden<<<grid, 256, 0, stream>>>(table, 0, words_of(one));
        OK(cudaFree(table));
    }

    void launch()
    {
        block &one = any();
        cudaStream_t stream = after(one);
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
        mix<<<grid, 256, 0, stream>>>(one.words, words_of(one));
        if (below(4) == 0)
            OK(cudaMemsetAsync(one.words, 7, one.bytes / 3, stream));
        read_all<<<grid, 256, 0, stream>>>(one.words, words_of(one), sum);
        OK(cudaStreamEndCapture(stream, &graph));
        OK(cudaGraphInstantiate(&exec, graph, 0));
        for (size_t k = 1 + below(3); k; k--)
            OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaGraphExecDestroy(exec));
        OK(cudaGraphDestroy(graph));
    }

    void rest()
    {
        print_sum("sum");
    }

    void print_sum(const char *what)
    {
        unsigned long long s;
        OK(cudaDeviceSynchronize());
        OK(cudaMemcpy(&s, sum, sizeof s, cudaMemcpyDeviceToHost));
        printf("%s %llx\n", what, s);
    }
};

static int wander(unsigned seed, int turns, size_t mib)
{
    wanderer one(seed, mib * MIB);
    for (int i = 0; i < turns; i++)
        one.turn();
    one.finish();
    return 0;
}

static bool is_told_to_end(int wait_ms)
{
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    return poll(&input, 1, wait_ms) != 0;
}

static int fill_card(unsigned seed, size_t least, size_t more)
{
    const size_t step = 256 * MIB;
    std::mt19937 random(seed);
    std::vector<void *> held;
    size_t wanted = (least + more) * MIB, free_bytes, total;
    int n_changes = 0;
    for (int i = 0; !is_told_to_end(5); i++) {
        if (i % 60 == 0) {
            wanted = (least + random() % (more + 1)) * MIB;
            n_changes++;
        }
        OK(cudaMemGetInfo(&free_bytes, &total));
        while (free_bytes > wanted + step) {
            void *p;
            if (cudaMalloc(&p, step) != cudaSuccess)
                break;
            held.push_back(p);
            free_bytes -= step;
        }
        while (free_bytes < wanted && !held.empty()) {
            OK(cudaFree(held.back()));
            held.pop_back();
            free_bytes += step;
        }
        if (i == 0) {
            printf("full\n");
            fflush(stdout);
        }
    }
    printf("%d changes\n", n_changes);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "wander"))
        return wander((unsigned)atoi(argv[2]), atoi(argv[3]), (size_t)atoi(argv[4]));
    if (argc == 5 && !strcmp(argv[1], "fill"))
        return fill_card((unsigned)atoi(argv[2]), (size_t)atoi(argv[3]), (size_t)atoi(argv[4]));
    fprintf(stderr, "usage: shared wander SEED TURNS MIB|fill SEED LEAST MORE\n");
    return EXIT_UNUSABLE;
}
