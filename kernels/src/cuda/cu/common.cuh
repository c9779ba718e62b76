// Functions that all kernels use. No header of the CUDA toolkit is included, so a machine that compiles kernels needs
// only NVRTC. The structs of arguments come before this text; they are generated from the host's structs
// (arguments.rs).

#ifndef FORETOKEN_EMULATED
#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define THREADS(n) __launch_bounds__(n)
// Blocks of `n` threads; the compiler leaves registers for `blocks` of them on a multiprocessor.
#define THREADS_OF_BLOCKS(n, blocks) __launch_bounds__(n, blocks)
// Blocks of attention on a multiprocessor. Three would spill registers from compute capability 10.0 on.
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

// With dependent launches a kernel starts while the one before it still runs. Every thread waits here until the kernel
// before it has ended, before it reads another kernel's output or writes what another kernel reads. The kernel before
// has itself waited here, so all earlier kernels have ended, too.
DEVICE void wait_for_inputs() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start as soon as every block of this kernel has called this. The next kernel then runs up to its
// `wait_for_inputs`. A kernel calls it first of all, so that the next product of few rows reads its first weights while
// this kernel still waits.
DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// 2 to the power x, with 2 units in the last place; 0 for minus infinity. Results below 2^-126 are 0.
DEVICE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// D += A·B for A of 16 × 16 and B of 16 × 8 bf16 and D of f32. Lane 4·g + c of the warp has: of A the pairs that begin
// at (row g, column 2c), (g + 8, 2c), (g, 2c + 8), (g + 8, 2c + 8); of B the pairs that begin at (row 2c, column g),
// (2c + 8, g), down the column; of D the numbers (g, 2c), (g, 2c + 1), (g + 8, 2c), (g + 8, 2c + 1). Source: PTX ISA,
// "Matrix Fragments for mma.m16n8k16".
DEVICE void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Rounds two numbers to bf16; the first is in the lower half.
DEVICE u32 narrow2(float low, float high) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
    return out;
}

// Reads a number that another block of this launch has written. The read bypasses the L1 cache, which may be stale.
DEVICE float load_shared_result(const float* from) {
    float x;
    asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}

// Copies 16 bytes from global to shared memory while the thread goes on.
DEVICE void copy_async(void* to, const void* from) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
// The same; the L2 cache also fetches the rest of the 256 bytes around it.
DEVICE void copy_weights(void* to, const void* from) {
    u32 at = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
}
DEVICE void copies_issued() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until all but the last `left` groups of this thread's copies have arrived.
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

// The sum of `x` over a block's threads, in one fixed order, returned to every thread. `scratch` has a place per warp.
DEVICE float block_sum(float x, float* scratch) {
    UNROLL for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(EVERY_LANE, x, step);
    __syncthreads();
    if (threadIdx.x % WARP == 0) scratch[threadIdx.x / WARP] = x;
    __syncthreads();
    float total = 0.0f;
    for (u32 w = 0; w < blockDim.x / WARP; w++) total += scratch[w];
    return total;
}

// A token and its logit; of equal logits the smaller token comes first.
struct Best {
    float logit;
    u32 token;
};

DEVICE bool before(float logit, u32 token, float other, u32 other_token) {
    return logit > other || (logit == other && token < other_token);
}

// The first of the threads' `Best` in the order of `before`, returned to every thread of the block.
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
