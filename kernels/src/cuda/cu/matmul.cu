// Matrix products with at most 8 rows. Their time is the time to read the weights: every weight is read once, so 8 rows
// take as long as one row. cuBLASLt computes products with more rows.
//
// A thread block reads 16 rows of weights. Its 8 warps take groups of 32 inputs ("stretches") in turn, so that together
// they read 512 bytes of a weight row. A lane reads 8 neighbouring inputs at once, although the matrix units expect
// inputs 2c, 2c + 1, 2c + 8 and 2c + 9 of each 16 in lane c. This is correct because the sums over inputs may be made
// in any order, as long as weights and activations use the same order.

#define FEW_WARPS 8
// Number of places in a warp's ring buffer: the number of stretches (groups of 32 inputs) that a warp copies at the
// same time. The host's constant `FEW_MEMORY` depends on this number.
#define FEW_RING 8

// The sums of all warps, with the indices [warp][row of activations][row of weights].
typedef float Parts[FEW_WARPS][8][16];

// Computes the products of all rows of activations with the thread block's 16 rows of weights. Lane 4 * g + c reads the
// weight rows `upper` and `lower`, as rows g and g + 8 of the 16. Returns the sums of each warp.
//
// Each lane copies its weights into a ring buffer in shared memory and reads no other lane's weights, so the lanes need
// not wait for each other. The ring holds more bytes in flight than registers could.
DEVICE Parts& few(const FewArgs& a, u32 upper, u32 lower) {
    let_next_start();
    DYNAMIC_SHARED(memory);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    // The ring buffer of this warp, with the indices [place in the ring][0: upper row, 1: lower row][lane].
    Quad(*ring)[2][WARP] = (Quad(*)[2][WARP])memory + warp * FEW_RING;
    Parts& parts = *(Parts*)((Quad(*)[2][WARP])memory + FEW_WARPS * FEW_RING);
    const bf16* upper_row = a.weights + (u64)upper * a.weight_stride + 8 * c;
    const bf16* lower_row = a.weights + (u64)lower * a.weight_stride + 8 * c;
    bool there = g < a.rows;
    u32 stretches = (a.inputs + 31) / 32;
    // Rows are padded with zeros to a multiple of 8 inputs, not of 32. Some lanes therefore have no inputs in the last
    // stretch (group of 32 inputs).
    auto inside = [&](u32 stretch) { return 32 * stretch + 8 * c < a.inputs; };
    auto fetch = [&](u32 stretch, u32 place) {
        if (inside(stretch)) {
            copy_weights(&ring[place][0][lane], upper_row + 32 * stretch);
            copy_weights(&ring[place][1][lane], lower_row + 32 * stretch);
        }
        copies_issued();
    };
    // The first weights are fetched before `wait_for_inputs`, because weights do not depend on the results of other
    // kernels.
    UNROLL for (int i = 0; i < FEW_RING; i++) fetch(warp + i * FEW_WARPS, i);
    wait_for_inputs();
    const bf16* x_row = a.x + (u64)(there ? g : 0) * a.x_stride + 8 * c;
    float sums[4] = {};
    for (u32 s = warp; s < stretches; s += FEW_RING * FEW_WARPS) {
        Quad x[FEW_RING];
        UNROLL for (int i = 0; i < FEW_RING; i++) {
            u32 stretch = s + i * FEW_WARPS;
            x[i] = there && inside(stretch) ? load(x_row + 32 * stretch) : Quad{0, 0, 0, 0};
        }
        UNROLL for (int i = 0; i < FEW_RING; i++) {
            u32 stretch = s + i * FEW_WARPS;
            copies_arrived<FEW_RING - 1>();
            Quad up = {0, 0, 0, 0}, low = {0, 0, 0, 0};
            if (inside(stretch)) {
                up = ring[i][0][lane];
                low = ring[i][1][lane];
            }
            fetch(stretch + FEW_RING * FEW_WARPS, i);
            const u32 first[4] = {up.x, low.x, up.y, low.y}, second[4] = {up.z, low.z, up.w, low.w};
            mma(sums, first, x[i].x, x[i].y);
            mma(sums, second, x[i].z, x[i].w);
        }
    }
    parts[warp][2 * c][g] = sums[0];
    parts[warp][2 * c + 1][g] = sums[1];
    parts[warp][2 * c][g + 8] = sums[2];
    parts[warp][2 * c + 1][g + 8] = sums[3];
    __syncthreads();
    return parts;
}

// Adds the sums of all warps for one row of activations and one row of weights, in the order of the warps.
DEVICE float all_warps(const Parts& parts, u32 row, u32 weight_row) {
    float total = 0.0f;
    UNROLL for (int p = 0; p < FEW_WARPS; p++) total += parts[p][row][weight_row];
    return total;
}

// The matrix product of few rows. A thread block makes 16 outputs. The last block may have outputs beyond `a.outputs`:
// it computes them from the last output's weights and does not write them.
KERNEL THREADS(256) matmul_few(const FewArgs a) {
    u32 first = blockIdx.x * 16, g = threadIdx.x % WARP / 4, last = a.outputs - 1;
    const Parts& parts = few(a, first + g < last ? first + g : last, first + g + 8 < last ? first + g + 8 : last);
    u32 row = threadIdx.x / 16, output = threadIdx.x % 16;
    if (row >= a.rows || first + output >= a.outputs) return;
    float total = all_warps(parts, row, output);
    u64 to = (u64)row * a.out_stride + first + output;
    // `form` has a value of the host's module `form`: 0 writes bf16, 1 writes f32, 2 adds to f32.
    if (a.form == 2) {
        ((float*)a.out)[to] += total;
    } else if (a.form == 1) {
        ((float*)a.out)[to] = total;
    } else {
        ((bf16*)a.out)[to] = narrow(total);
    }
}

// Computes silu(gate) * up for few rows. The first `outputs` rows of the weights give the gates, and the next `outputs`
// rows give the ups. A thread block makes 8 outputs.
KERNEL THREADS(256) gated_few(const FewArgs a) {
    u32 first = blockIdx.x * 8, g = threadIdx.x % WARP / 4, last = a.outputs - 1;
    u32 gate = first + g < last ? first + g : last;
    const Parts& parts = few(a, gate, a.outputs + gate);
    u32 row = threadIdx.x / 8, output = threadIdx.x % 8;
    if (row >= a.rows || first + output >= a.outputs) return;
    float made = silu_times(all_warps(parts, row, output), all_warps(parts, row, 8 + output));
    ((bf16*)a.out)[(u64)row * a.out_stride + first + output] = narrow(made);
}

// Computes queries, keys and values for few rows: the matrix product and then the work of `rope_store`. A thread block
// makes 8 pairs of dimensions (i and i + half) of one head. The head must be as wide as a row of KV.
KERNEL THREADS(256) qkv_few(const QkvArgs a) {
    u32 half = a.head_dim / 2, head = blockIdx.x / (half / 8), first = blockIdx.x % (half / 8) * 8;
    u32 upper = head * a.head_dim + first + threadIdx.x % WARP / 4;
    const Parts& parts = few(a.few, upper, upper + half);
    u32 row = threadIdx.x / 8, pair = threadIdx.x % 8, i = first + pair;
    if (row >= a.few.rows) return;
    float x = all_warps(parts, row, pair), y = all_warps(parts, row, 8 + pair);
    if (head < a.heads + a.kv_heads) {
        float sine, cosine;
        sincosf((float)a.positions[row] * a.frequencies[i], &sine, &cosine);
        float turned = x * cosine - y * sine;
        y = y * cosine + x * sine;
        x = turned;
    }
    bf16* out = (bf16*)a.few.out + (u64)row * a.few.out_stride + (u64)head * a.head_dim;
    if (head >= a.heads) {
        u32 kv_head = (head - a.heads) % a.kv_heads, slot = a.slots[row];
        bf16* pool = head < a.heads + a.kv_heads ? a.keys : a.values;
        out = pool + (((u64)(slot / 16) * a.kv_heads + kv_head) * 16 + slot % 16) * a.head_dim;
    }
    out[i] = narrow(x);
    out[i + half] = narrow(y);
}
