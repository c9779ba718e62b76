// Operations on single rows of activations. Rows begin at multiples of 16 bytes. Unless a kernel says otherwise, a
// thread block handles one part (grid x) of one row (grid y).

// Writes the embedding of each token to a row of `out`, as f32.
KERNEL THREADS(256) embed(const EmbedArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.width) return;
    u64 row = blockIdx.y;
    a.out[row * a.out_stride + i] = widen(a.table[(u64)a.tokens[row] * a.table_stride + i]);
}

// RMSNorm of the rows of `x`. If `delta` is given, it is first added to `x` in place. A thread block handles one row.
KERNEL THREADS(1024) add_norm(const AddNormArgs a) {
    let_next_start();
    wait_for_inputs();
    SHARED float scratch[MOST_WARPS];
    u64 row = blockIdx.x;
    float* x = a.x + row * a.x_stride;
    const bf16* delta = a.delta ? a.delta + row * a.delta_stride : nullptr;
    u32 quads = a.width / 4;
    float squares = 0.0f;
    for (u32 q = threadIdx.x; q < quads; q += blockDim.x) {
        Floats v = ((Floats*)x)[q];
        if (delta) {
            Pairs d = ((const Pairs*)delta)[q];
            v = Floats{v.x + low(d.x), v.y + high(d.x), v.z + low(d.y), v.w + high(d.y)};
            ((Floats*)x)[q] = v;
        }
        squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    u32 last = 4 * quads + threadIdx.x;
    if (last < a.width) {
        float v = x[last];
        if (delta) x[last] = v = v + widen(delta[last]);
        squares += v * v;
    }
    float scale = 1.0f / sqrtf(block_sum(squares, scratch) / (float)a.width + a.eps);
    bf16* out = a.out + row * a.out_stride;
    // Each thread reads only numbers of `x` that it wrote itself, so no synchronisation is needed.
    for (u32 q = threadIdx.x; q < quads; q += blockDim.x) {
        Floats v = ((Floats*)x)[q];
        Floats g = ((const Floats*)a.gains)[q];
        Pairs o = {narrow2(v.x * scale * g.x, v.y * scale * g.y), narrow2(v.z * scale * g.z, v.w * scale * g.w)};
        ((Pairs*)out)[q] = o;
    }
    if (last < a.width) out[last] = narrow(x[last] * scale * a.gains[last]);
}

// RMSNorm of each head of queries and keys by its own mean square, in place. A warp handles one head; a thread block
// handles some heads (grid x) of one row (grid y).
KERNEL THREADS(128) norm_heads(const NormHeadsArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 head = blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    u32 lane = threadIdx.x % WARP;
    if (head >= a.heads + a.kv_heads) return;
    bf16* x = a.qkv + (u64)blockIdx.y * a.stride + (u64)head * a.head_dim;
    const float* gains = head < a.heads ? a.query_gains : a.key_gains;
    float squares = 0.0f;
    for (u32 i = lane; i < a.head_dim; i += WARP) {
        float v = widen(x[i]);
        squares += v * v;
    }
    UNROLL for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(EVERY_LANE, squares, step);
    float scale = 1.0f / sqrtf(squares / (float)a.head_dim + a.eps);
    for (u32 i = lane; i < a.head_dim; i += WARP) x[i] = narrow(widen(x[i]) * scale * gains[i]);
}

// Computes silu(gate) · up. A row of `gate_up` has all gates first, then all ups. A thread makes eight outputs if the
// width is a multiple of 8, otherwise one output.
KERNEL THREADS(256) swiglu(const SwigluArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    const bf16* gate = a.gate_up + (u64)blockIdx.y * a.in_stride;
    const bf16* up = gate + a.width;
    bf16* out = a.out + (u64)blockIdx.y * a.out_stride;
    if (a.width % 8 == 0) {
        if (i >= a.width / 8) return;
        Quad g = load(gate + 8 * i), u = load(up + 8 * i);
        Quad o;
        o.x = narrow2(silu_times(low(g.x), low(u.x)), silu_times(high(g.x), high(u.x)));
        o.y = narrow2(silu_times(low(g.y), low(u.y)), silu_times(high(g.y), high(u.y)));
        o.z = narrow2(silu_times(low(g.z), low(u.z)), silu_times(high(g.z), high(u.z)));
        o.w = narrow2(silu_times(low(g.w), low(u.w)), silu_times(high(g.w), high(u.w)));
        *(Quad*)(out + 8 * i) = o;
    } else if (i < a.width) {
        out[i] = narrow(silu_times(widen(gate[i]), widen(up[i])));
    }
}

// Copies row `rows[i]` of the input to row i of the output, padding included, in units of 16 bytes.
KERNEL THREADS(256) gather(const GatherArgs a) {
    let_next_start();
    wait_for_inputs();
    const Quad* from = a.input + (u64)a.rows[blockIdx.x] * a.quads;
    Quad* to = a.out + (u64)blockIdx.x * a.quads;
    for (u32 q = threadIdx.x; q < a.quads; q += blockDim.x) to[q] = from[q];
}

// Copies row i of the input to row `rows[i]` of the output.
KERNEL THREADS(256) scatter(const GatherArgs a) {
    let_next_start();
    wait_for_inputs();
    const Quad* from = a.input + (u64)blockIdx.x * a.quads;
    Quad* to = a.out + (u64)a.rows[blockIdx.x] * a.quads;
    for (u32 q = threadIdx.x; q < a.quads; q += blockDim.x) to[q] = from[q];
}

// Writes rows of f32 or bf16 to `out` as f32 without padding, so that the host can download them.
KERNEL THREADS(256) unpack(const UnpackArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.width) return;
    u64 from = (u64)blockIdx.y * a.stride + i;
    a.out[(u64)blockIdx.y * a.width + i] = a.wide ? ((const float*)a.input)[from] : widen(((const bf16*)a.input)[from]);
}

// Reads rows of f32 without padding and writes them as padded rows of f32 or bf16.
KERNEL THREADS(256) pack(const PackArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.width) return;
    u64 to = (u64)blockIdx.y * a.stride + i;
    float x = a.input[(u64)blockIdx.y * a.width + i];
    if (a.wide) {
        ((float*)a.out)[to] = x;
    } else {
        ((bf16*)a.out)[to] = narrow(x);
    }
}

DEVICE u64 mixed(u64 z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Draws random weights. The kernel hashes `base`, which identifies a random sequence, with the index of each weight. It
// rounds as the host does (`Luck::unit` of crate sim), so host and device draw the same weights.
KERNEL THREADS(256) random_weights(const RandomWeightsArgs a) {
    let_next_start();
    wait_for_inputs();
    u64 count = (u64)a.rows * a.width;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 bits = mixed(a.base + i * 0x9E3779B97F4A7C15ull);
        double unit = (double)(bits >> 11) * (1.0 / 9007199254740992.0);
        a.out[i / a.width * a.stride + i % a.width] = narrow(a.scale * (float)(2.0 * unit - 1.0));
    }
}

#define MOST_HALF 64

// Rotates two pairs of numbers by their rotary angles. `first` and `second` are words of two bf16: the lower halves are
// one pair (first, second), the upper halves are the other pair.
DEVICE void turn(u32& first, u32& second, const float* sine, const float* cosine) {
    float a = low(first), b = low(second), c = high(first), d = high(second);
    first = narrow2(a * cosine[0] - b * sine[0], c * cosine[1] - d * sine[1]);
    second = narrow2(b * cosine[0] + a * sine[0], d * cosine[1] + c * sine[1]);
}

// Rotates queries and keys by the rotary angles of their positions, and writes keys and values to their KV slots. A
// slot has a row of `dim` numbers per key-value head; numbers beyond the head's width are zero. Dimension i is paired
// with dimension i + head_dim / 2, as in Hugging Face. A thread handles 8 neighbouring pairs of a head, or one pair if
// half a head is not a multiple of 8. A thread block handles a part of the heads (grid x: all heads of queries, then of
// keys, then of values) of one row (grid y).
KERNEL THREADS(256) rope_store(const RopeStoreArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 half = a.head_dim / 2, each = half % 8 ? 1 : 8, per_head = half / each;
    u64 row = blockIdx.y;
    SHARED float sines[MOST_HALF], cosines[MOST_HALF];
    if (threadIdx.x < half) {
        sincosf((float)a.positions[row] * a.frequencies[threadIdx.x], &sines[threadIdx.x], &cosines[threadIdx.x]);
    }
    __syncthreads();
    u32 item = blockIdx.x * blockDim.x + threadIdx.x;
    u32 head = item / per_head, i = item % per_head * each;
    if (head >= a.heads + 2 * a.kv_heads) return;
    bf16* x = a.qkv + row * a.stride + (u64)head * a.head_dim;
    bf16* out = x;
    if (head >= a.heads) {
        u32 kv_head = (head - a.heads) % a.kv_heads;
        u32 slot = a.slots[row];
        bf16* pool = head < a.heads + a.kv_heads ? a.keys : a.values;
        out = pool + (((u64)(slot / 16) * a.kv_heads + kv_head) * 16 + slot % 16) * a.dim;
        for (u32 z = a.head_dim + item % per_head; z < a.dim; z += per_head) out[z] = 0;
    }
    bool turns = head < a.heads + a.kv_heads;
    if (each == 8) {
        Quad first = load(x + i), second = load(x + i + half);
        if (turns) {
            turn(first.x, second.x, sines + i, cosines + i);
            turn(first.y, second.y, sines + i + 2, cosines + i + 2);
            turn(first.z, second.z, sines + i + 4, cosines + i + 4);
            turn(first.w, second.w, sines + i + 6, cosines + i + 6);
        }
        *(Quad*)(out + i) = first;
        *(Quad*)(out + i + half) = second;
    } else {
        float first = widen(x[i]), second = widen(x[i + half]), sine = turns ? sines[i] : 0.0f;
        float cosine = turns ? cosines[i] : 1.0f;
        out[i] = narrow(first * cosine - second * sine);
        out[i + half] = narrow(second * cosine + first * sine);
    }
}

// Copies keys and values from KV slot to KV slot, for each pair (from, to). A thread copies 16 bytes at the same place
// of each slot, one pair after the other, so the copies are made in the order of the pairs.
KERNEL THREADS(256) move_kv(const MoveKvArgs a) {
    let_next_start();
    wait_for_inputs();
    u32 per_token = a.kv_heads * (a.dim / 8);
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= per_token) return;
    u32 head = i / (a.dim / 8), part = i % (a.dim / 8);
    // Each layer has a pool of keys and then a pool of values; `blockIdx.y` counts these pools.
    bf16* pool = a.pools + (u64)blockIdx.y * a.pool_numbers;
    for (u32 m = 0; m < a.moves; m++) {
        u32 from = a.pairs[2 * m], to = a.pairs[2 * m + 1];
        u64 source = (((u64)(from / 16) * a.kv_heads + head) * 16 + from % 16) * a.dim + 8 * part;
        u64 target = (((u64)(to / 16) * a.kv_heads + head) * 16 + to % 16) * a.dim + 8 * part;
        *(Quad*)(pool + target) = load(pool + source);
    }
}
