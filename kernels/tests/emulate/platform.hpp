// Emulates the part of CUDA that the kernels use, on a processor. Blocks run one after the other; the threads of a
// block are fibres that run until they wait for each other. The emulation is stricter than a GPU: it reports a barrier
// that a thread has left, lanes that meet at different operations, and copies that are read before they were waited
// for. Shared memory begins as NaN.
#define FORETOKEN_EMULATED
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

#define DEVICE static inline
#define KERNEL extern "C" void
#define THREADS(n)
#define THREADS_OF_BLOCKS(n, blocks)
#define SHARED static __attribute__((section("foretoken_shared")))
#define DYNAMIC_SHARED(name) unsigned char* name = dynamic_memory
#define UNROLL
#define UNROLL_BY(n)

struct Index {
    u32 x, y, z;
};
Index threadIdx, blockIdx, blockDim, gridDim;
alignas(16) unsigned char dynamic_memory[256 << 10];
extern "C" unsigned char __start_foretoken_shared[], __stop_foretoken_shared[];

enum Wait { RUNS, AT_BARRIER, AT_SHUFFLE, AT_MMA, ENDED };

struct Copy {
    void* to;
    const void* from;
};

struct Fibre {
    ucontext_t start;
    jmp_buf at;
    bool started;
    Wait wait;
    char* stack;
    std::vector<std::vector<Copy>> copies;
};

static const size_t STACK = 128 << 10;
Fibre fibres[1024];
jmp_buf scheduler;
u32 current;
u32 exchange[32][32][8];
void (*kernel_now)(const void*);
const void* arguments_now;

// Lets other fibres run until all threads for which this one waits have arrived.
__attribute__((noinline)) void wait_as(Wait wait) {
    Fibre& me = fibres[current];
    me.wait = wait;
    if (_setjmp(me.at) == 0) _longjmp(scheduler, 1);
}

static void fibre_main() {
    kernel_now(arguments_now);
    fibres[current].wait = ENDED;
    _longjmp(scheduler, 1);
}

__attribute__((noinline)) static void resume(u32 thread) {
    current = thread;
    threadIdx = Index{thread % blockDim.x, thread / blockDim.x, 0};
    Fibre& fibre = fibres[thread];
    fibre.wait = RUNS;
    if (_setjmp(scheduler) != 0) return;
    if (fibre.started) _longjmp(fibre.at, 1);
    fibre.started = true;
    setcontext(&fibre.start);
}

static void __syncthreads() { wait_as(AT_BARRIER); }
static u32 lane_now() { return (threadIdx.y * blockDim.x + threadIdx.x) % 32; }
static u32 (*warp_now())[8] { return exchange[(threadIdx.y * blockDim.x + threadIdx.x) / 32]; }

static u32 shuffle_bits(u32 bits, int step) {
    warp_now()[lane_now()][0] = bits;
    wait_as(AT_SHUFFLE);
    u32 other = warp_now()[lane_now() ^ step][0];
    wait_as(AT_SHUFFLE);
    return other;
}
static u32 __shfl_xor_sync(u32, u32 x, int step) { return shuffle_bits(x, step); }
static float __shfl_xor_sync(u32, float x, int step) {
    u32 bits;
    memcpy(&bits, &x, 4);
    bits = shuffle_bits(bits, step);
    memcpy(&x, &bits, 4);
    return x;
}
static void __syncwarp() { shuffle_bits(0, 1); }
static bool __any_sync(u32, bool x) {
    u32 any = x;
    for (int step = 16; step > 0; step /= 2) any |= shuffle_bits(any, step);
    return any;
}

static float __uint_as_float(u32 bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
static u32 __float_as_uint(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    return bits;
}
static float __int_as_float(int bits) { return __uint_as_float((u32)bits); }
static u32 __byte_perm(u32 x, u32 y, u32 pick) {
    u64 both = (u64)y << 32 | x;
    u32 out = 0;
    for (int i = 0; i < 4; i++) out |= (u32)(both >> 8 * (pick >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}
static u32 atomicAdd(u32* at, u32 more) {
    u32 old = *at;
    *at = old + more;
    return old;
}
static void __threadfence() {}
static void wait_for_inputs() {}
static void let_next_start() {}
static float power_of_2(float x) { return exp2f(x); }

static u32 round_to_bf16(float x) {
    u32 bits;
    memcpy(&bits, &x, 4);
    if (x != x) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static u32 narrow2(float low, float high) { return round_to_bf16(low) | round_to_bf16(high) << 16; }
static float load_shared_result(const float* from) { return *from; }

// On a GPU, a copy arrives at any time between being issued and being waited for. Here it arrives at once in every
// second block, and at the wait in the other blocks.
static void copy_async(void* to, const void* from) {
    if (((u64)to | (u64)from) % 16) abort();
    if ((blockIdx.x + blockIdx.y) % 2) {
        memcpy(to, from, 16);
        return;
    }
    if (fibres[current].copies.empty()) fibres[current].copies.emplace_back();
    fibres[current].copies.back().push_back(Copy{to, from});
}
static void copy_weights(void* to, const void* from) { copy_async(to, from); }
static void copies_issued() { fibres[current].copies.emplace_back(); }
// The last group is not yet issued: further copies are added to it.
template <int left> static void copies_arrived() {
    auto& groups = fibres[current].copies;
    while (groups.size() > left + 1) {
        for (Copy& c : groups.front()) memcpy(c.to, c.from, 16);
        groups.erase(groups.begin());
    }
}

static float half_of(u32 pair, int which) { return __uint_as_float(which ? pair & 0xffff0000u : pair << 16); }
static void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    u32 lane = lane_now(), (*all)[8] = warp_now();
    u32 mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(all[lane], mine, sizeof mine);
    wait_as(AT_MMA);
    for (int i = 0; i < 4; i++) {
        u32 row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
        double sum = 0;
        for (u32 k = 0; k < 16; k++) {
            float x = half_of(all[4 * (row % 8) + k % 8 / 2][(row >= 8) + 2 * (k >= 8)], k % 2);
            float y = half_of(all[4 * column + k % 8 / 2][4 + (k >= 8)], k % 2);
            sum += (double)x * y;
        }
        d[i] += (float)sum;
    }
    wait_as(AT_MMA);
}

static char failure[256];

static const char* run_block(u32 threads, u32 shared) {
    memset(__start_foretoken_shared, 0xff, __stop_foretoken_shared - __start_foretoken_shared);
    memset(dynamic_memory, 0xff, sizeof dynamic_memory);
    for (u32 t = 0; t < threads; t++) {
        Fibre& fibre = fibres[t];
        if (!fibre.stack) {
            fibre.stack = (char*)mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        }
        getcontext(&fibre.start);
        fibre.start.uc_stack.ss_sp = fibre.stack;
        fibre.start.uc_stack.ss_size = STACK;
        fibre.start.uc_link = 0;
        makecontext(&fibre.start, fibre_main, 0);
        fibre.started = false;
        fibre.wait = RUNS;
        fibre.copies.clear();
    }
    for (;;) {
        u32 ended = 0, waiting = 0;
        for (u32 warp = 0; warp < threads; warp += 32) {
            u32 end = warp + 32 < threads ? warp + 32 : threads;
            for (;;) {
                for (u32 t = warp; t < end; t++) {
                    if (fibres[t].wait == RUNS) resume(t);
                }
                Wait wait = fibres[warp].wait;
                bool together = wait == AT_SHUFFLE || wait == AT_MMA;
                for (u32 t = warp; t < end; t++) {
                    bool of_warp = fibres[t].wait == AT_SHUFFLE || fibres[t].wait == AT_MMA;
                    if (fibres[t].wait != wait && (together || of_warp)) {
                        snprintf(failure, sizeof failure, "lanes of warp %u meet at different operations", warp / 32);
                        return failure;
                    }
                }
                if (!together) break;
                if (end - warp != 32) return "a warp operation in a warp that is not whole";
                for (u32 t = warp; t < end; t++) fibres[t].wait = RUNS;
            }
            for (u32 t = warp; t < end; t++) {
                ended += fibres[t].wait == ENDED;
                waiting += fibres[t].wait == AT_BARRIER;
            }
        }
        if (ended == threads) break;
        if (waiting != threads) return "a barrier that some threads have left";
        for (u32 t = 0; t < threads; t++) fibres[t].wait = RUNS;
    }
    for (u32 t = 0; t < threads; t++) {
        for (auto& group : fibres[t].copies) {
            if (!group.empty()) return "copies that nobody waited for";
        }
    }
    return 0;
}

static const char* run_grid(void (*kernel)(const void*), const u32* grid, const u32* block, u32 shared, const void* a) {
    u32 threads = block[0] * block[1];
    if (threads > 1024) return "more than 1024 threads";
    if (shared > 227 << 10) return "more than 227 KiB of shared memory";
    if (grid[1] > 65535 || grid[2] > 65535) return "a grid higher or deeper than 65535";
    kernel_now = kernel;
    arguments_now = a;
    gridDim = Index{grid[0], grid[1], grid[2]};
    blockDim = Index{block[0], block[1], 1};
    for (u32 z = 0; z < grid[2]; z++) {
        for (u32 y = 0; y < grid[1]; y++) {
            for (u32 x = 0; x < grid[0]; x++) {
                blockIdx = Index{x, y, z};
                if (const char* why = run_block(threads, shared)) return why;
            }
        }
    }
    return 0;
}

// Computes the matrix product that cuBLASLt computes on a GPU.
extern "C" void emulate_matmul(const bf16* x, const bf16* w, void* out, const u32* s, u32 wide) {
    for (u32 row = 0; row < s[0]; row++) {
        for (u32 o = 0; o < s[2]; o++) {
            float sum = 0;
            for (u32 i = 0; i < s[1]; i++) {
                sum += half_of(x[(u64)row * s[3] + i], 0) * half_of(w[(u64)o * s[4] + i], 0);
            }
            u64 to = (u64)row * s[5] + o;
            if (wide) {
                ((float*)out)[to] = sum;
            } else {
                ((bf16*)out)[to] = round_to_bf16(sum);
            }
        }
    }
}

// Allocates memory between two pages that may not be touched, so that an access outside of it ends the process.
extern "C" void* emulate_allocate(u64 bytes) {
    u64 page = 4096, body = (bytes + page - 1) / page * page;
    char* at = (char*)mmap(0, body + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 0;
    mprotect(at, page, PROT_NONE);
    mprotect(at + page + body, page, PROT_NONE);
    return at + page + body - (bytes + 255) / 256 * 256;
}
extern "C" void emulate_free(void* at, u64 bytes) {
    u64 page = 4096, body = (bytes + page - 1) / page * page;
    munmap((char*)at + (bytes + 255) / 256 * 256 - body - page, body + 2 * page);
}
