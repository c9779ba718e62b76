// Matrix products with at most 32 rows. Their time is the time to read the weights: every weight is read once, straight
// into the registers of the matrix units, so 32 rows cost the same as one. cuBLASLt computes larger products.
//
// A block makes 16 outputs. Its 8 warps take stretches of 32 inputs in turn, so that together they read 512 bytes of a
// weight row. A lane reads 8 neighbouring inputs at once; the matrix units' own order would be 2 + 2 of 16. Sums over
// inputs may be made in any order, as long as weights and activations use the same order.

#define FEW_WARPS 8
#define AT_ONCE 4

struct Weights {
    Quad upper, lower;
};

// Multiplies one stretch of inputs: the weights of outputs g (upper) and g + 8 (lower) times the rows' activations.
template <int TILES>
DEVICE void multiply(float (&sums)[TILES][4], const Weights& w, const Quad (&x)[TILES]) {
    const u32 first[4] = {w.upper.x, w.lower.x, w.upper.y, w.lower.y};
    const u32 second[4] = {w.upper.z, w.lower.z, w.upper.w, w.lower.w};
    UNROLL for (int n = 0; n < TILES; n++) {
        mma(sums[n], first, x[n].x, x[n].y);
        mma(sums[n], second, x[n].z, x[n].w);
    }
}

template <int TILES> DEVICE void few(const FewArgs& a) {
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    u32 first = blockIdx.x * 16;
    // Outputs beyond the last one are computed from the last output's weights and not written.
    u32 upper = first + g < a.outputs ? first + g : a.outputs - 1;
    u32 lower = first + g + 8 < a.outputs ? first + g + 8 : a.outputs - 1;
    const bf16* upper_row = a.weights + (u64)upper * a.weight_stride + 8 * c;
    const bf16* lower_row = a.weights + (u64)lower * a.weight_stride + 8 * c;
    const bf16* x_rows[TILES];
    bool there[TILES];
    UNROLL for (int n = 0; n < TILES; n++) {
        there[n] = 8 * n + g < a.rows;
        x_rows[n] = a.x + (u64)(there[n] ? 8 * n + g : 0) * a.x_stride + 8 * c;
    }
    float sums[TILES][4] = {};
    // Rows are padded with zeros to a multiple of 8 inputs, not of 32, so some lanes have no inputs in the last
    // stretch.
    u32 whole = a.inputs / 32, stretches = (a.inputs + 31) / 32;
    Weights w[AT_ONCE];
    u32 s = warp;
    // The first weights are read before `wait_for_inputs`, because they do not depend on other kernels' results.
    bool ahead = s + (AT_ONCE - 1) * FEW_WARPS < whole;
    if (ahead) {
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            w[i].upper = load_once(upper_row + 32 * (s + i * FEW_WARPS));
            w[i].lower = load_once(lower_row + 32 * (s + i * FEW_WARPS));
        }
    }
    wait_for_inputs();
    let_next_start();
    while (ahead) {
        Quad x[AT_ONCE][TILES];
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            UNROLL for (int n = 0; n < TILES; n++) {
                x[i][n] = there[n] ? load(x_rows[n] + 32 * (s + i * FEW_WARPS)) : Quad{0, 0, 0, 0};
            }
        }
        u32 next = s + AT_ONCE * FEW_WARPS;
        ahead = next + (AT_ONCE - 1) * FEW_WARPS < whole;
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            Weights here = w[i];
            if (ahead) {
                w[i].upper = load_once(upper_row + 32 * (next + i * FEW_WARPS));
                w[i].lower = load_once(lower_row + 32 * (next + i * FEW_WARPS));
            }
            multiply(sums, here, x[i]);
        }
        s = next;
    }
    for (; s < stretches; s += FEW_WARPS) {
        bool inside = 32 * s + 8 * c < a.inputs;
        Weights here = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        Quad x[TILES];
        if (inside) {
            here.upper = load_once(upper_row + 32 * s);
            here.lower = load_once(lower_row + 32 * s);
        }
        UNROLL for (int n = 0; n < TILES; n++) {
            x[n] = inside && there[n] ? load(x_rows[n] + 32 * s) : Quad{0, 0, 0, 0};
        }
        multiply(sums, here, x);
    }
    // Adds the warps' sums in the order of the warps.
    SHARED float parts[FEW_WARPS][8 * TILES][16];
    UNROLL for (int n = 0; n < TILES; n++) {
        parts[warp][8 * n + 2 * c][g] = sums[n][0];
        parts[warp][8 * n + 2 * c + 1][g] = sums[n][1];
        parts[warp][8 * n + 2 * c][g + 8] = sums[n][2];
        parts[warp][8 * n + 2 * c + 1][g + 8] = sums[n][3];
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < 16 * a.rows; i += blockDim.x) {
        u32 row = i / 16, output = i % 16;
        if (first + output >= a.outputs) continue;
        float total = 0.0f;
        UNROLL for (int p = 0; p < FEW_WARPS; p++) total += parts[p][row][output];
        u64 to = (u64)row * a.out_stride + first + output;
        if (a.wide) {
            ((float*)a.out)[to] = total;
        } else {
            ((bf16*)a.out)[to] = narrow(total);
        }
    }
}

KERNEL THREADS(256) matmul_8(const FewArgs a) { few<1>(a); }
KERNEL THREADS(256) matmul_16(const FewArgs a) { few<2>(a); }
KERNEL THREADS(256) matmul_32(const FewArgs a) { few<4>(a); }
