// Functions that all kernels use. No header of the CUDA toolkit is included, so a machine that compiles kernels needs
// only NVRTC. When the kernels are compiled, the structs of their arguments come before this text; they are generated
// from the host's structs (arguments.rs).

#ifndef FORETOKEN_EMULATED
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define THREADS(n) __launch_bounds__(n)
// A kernel with thread blocks of `n` threads. The compiler limits its registers so that `blocks` thread blocks fit on a
// multiprocessor at the same time.
#define THREADS_OF_BLOCKS(n, blocks) __launch_bounds__(n, blocks)
// Number of thread blocks of attention that should fit on a multiprocessor at the same time. From compute capability
// 10.0 on, three blocks would make the kernel spill registers.
#if __CUDA_ARCH__ >= 1000
#define ATTENTION_BLOCKS 2
#else
#define ATTENTION_BLOCKS 3
#endif
#define SHARED __shared__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define UNROLL _Pragma("unroll")
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(n) PRAGMA(unroll n)

// With dependent launches, a kernel starts while the previous kernel still runs. Every thread of a kernel calls this
// function before it reads another kernel's output or writes memory that another kernel reads. The function waits until
// the previous kernel has ended. The previous kernel has itself waited for its predecessor, so all earlier kernels have
// ended too.
DEVICE void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start as soon as every thread block of this kernel has called this function. The next kernel
// then runs up to its `wait_for_inputs`. A kernel calls this function first of all. If the next kernel is a product of
// few rows, it then reads its first weights while this kernel is still in its own `wait_for_inputs`.
DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Returns 2 to the power x, with an error of at most 2 units in the last place. The result is 0 for minus infinity, and
// for results below 2^-126.
DEVICE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Computes D += A·B on the matrix units, for A of 16 × 16 bf16, B of 16 × 8 bf16 and D of 16 × 8 f32. Lane 4·g + c of
// the warp has these numbers. Of A: the pairs that begin at (row g, column 2c), (g + 8, 2c), (g, 2c + 8), (g + 8, 2c +
// 8). Of B, down the column: the pairs that begin at (row 2c, column g), (2c + 8, g). Of D: the numbers (g, 2c), (g, 2c
// + 1), (g + 8, 2c), (g + 8, 2c + 1). Source: PTX ISA, "Matrix Fragments for mma.m16n8k16".
DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds two numbers to bf16 and returns them in one 32-bit word: `low` in the lower half, `high` in the upper half.
DEVICE u32 narrow2(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// Reads a number that another thread block of this launch has written. The read bypasses the L1 cache, which may be
// stale.
DEVICE float load_shared_result(const float* from) {
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}

// Starts a copy of 16 bytes from global to shared memory. The thread does not wait for the copy.
DEVICE void copy_async(void* to, const void* from) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
// Starts a copy of 16 bytes from global to shared memory, as `copy_async` does. The L2 cache also fetches the rest of
// the 256 bytes in which the 16 bytes lie.
DEVICE void copy_weights(void* to, const void* from) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
DEVICE void copies_issued() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Each call of `copies_issued` closes a group of this thread's copies. Waits until all groups have arrived except the
// last `left` groups.
template <int left> DEVICE void copies_arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }
#endif

DEVICE float widen(bf16 x) { return __uint_as_float((u32)x << 16); }
DEVICE bf16 narrow(float x) { return (bf16)(narrow2(x, 0.0f) & 0xffffu); }
DEVICE float low(u32 pair) { return __uint_as_float(pair << 16); }
DEVICE float high(u32 pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float silu_times(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }
DEVICE Quad load(const void* from) { return *(const Quad*)from; }

#define WARP 32
#define EVERY_LANE 0xffffffffu
#define MOST_WARPS 32

// Returns the sum of `x` over the threads of a thread block, added in one fixed order, to every thread. `scratch` has
// one place per warp.
DEVICE float block_sum(float x, float* scratch) {
    UNROLL for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(EVERY_LANE, x, step);
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    float total = 0.0f;
    for (u32 w = 0; w < blockDim.x / WARP; w++) total += scratch[w];
    return total;
}

// A token and its logit. In the order of `before`, a larger logit comes first; of two equal logits, the smaller token
// comes first.
struct Best {
    float logit;
    u32 token;
};

DEVICE bool before(float logit, u32 token, float other, u32 other_token) {
    return logit > other || (logit == other && token < other_token);
}

// Each thread of the thread block gives a `Best`. Returns the one that comes first in the order of `before` to every
// thread.
DEVICE Best block_best(Best best, Best* scratch) {
    UNROLL for (int step = 16; step > 0; step /= 2) {
        float logit = __shfl_xor_sync(EVERY_LANE, best.logit, step);
        u32 token = __shfl_xor_sync(EVERY_LANE, best.token, step);
        if (before(logit, token, best.logit, best.token)) best = Best{logit, token};
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = best;
    __syncthreads();
    best = scratch[0];
    for (u32 w = 1; w < blockDim.x / WARP; w++) {
        Best other = scratch[w];
        if (before(other.logit, other.token, best.logit, best.token)) best = other;
    }
    return best;
}

#define MINUS_INFINITY (-__int_as_float(0x7f800000))
