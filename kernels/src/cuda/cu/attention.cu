// Paged attention for requests with different numbers of queries. A query attends to a prefix of its context and to a
// set of new tokens after the prefix (a path of a tree).
//
// A query is a (token, head) pair. The queries of one key-value head are numbered token by token, and 16 of them are a
// tile of the matrix units. KV blocks have 16 tokens; the key or value of a token is a row of `DIM` numbers.
//
// A lane reads 16 bytes at a time, 8 neighbouring dimensions of a key or of a value, and passes them to the matrix
// units without transposition. For keys this works because a score is a sum over dimensions, whose order is free as
// long as queries use the same order. For values the 8 dimensions become 8 different columns of the output.

#define TILE 16
#define WARPS 4
#define LOG2_E 1.4426950408889634f

// The tokens that a query attends to. A lane has two queries, g and g + 8 of the tile.
struct Sight {
    u32 prefix;
    // Bit mask of the tokens after the prefix: `bits` bits from word `bits_at` on. A set bit is a visible token.
    u32 bits_at, bits;
};

template <int DIM> struct Queries {
    // The queries as pairs of bf16: [32 dimensions][four pairs of query g, then four pairs of query g + 8].
    u32 pairs[DIM / 32][8];
    Sight sight[2];
    // Weighted sums of values for the two queries (0, 1): dimension 64·h + 16·c + 8·e + u is out[h][u][2·query + e].
    float out[DIM / 64][8][4];
    float largest[2], sum[2];
};

struct Tile {
    // First row of the request, first query of the tile, number of queries in the tile.
    u32 row, query, queries;
    // First word of the request's block table, number of tokens that any query may attend to, number of tokens that all
    // queries attend to.
    u32 table, end, all_see;
};

DEVICE Tile tile_of(const AttendArgs& a, u32 index) {
    const u32* t = a.tiles + 6 * index;
    return Tile{t[0], t[1], t[2], t[3], t[4], t[5]};
}

template <int DIM>
DEVICE void begin(Queries<DIM>& q, const AttendArgs& a, const Tile& tile, u32 first, u32 kv_head, u32 g, u32 c) {
    UNROLL for (int which = 0; which < 2; which++) {
        u32 i = first + g + 8 * which;
        bool there = i < tile.queries;
        u32 query = tile.query + (there ? i : 0);
        u32 row = tile.row + query / a.group;
        const bf16* from = a.qkv + (u64)row * a.qkv_stride + (u64)(kv_head * a.group + query % a.group) * a.head_dim;
        UNROLL for (int j = 0; j < DIM / 32; j++) {
            UNROLL for (int p = 0; p < 4; p++) {
                u32 d = 32 * j + 8 * c + 2 * p;
                // Heads have an even width and begin at even indices, so a pair is one aligned word.
                q.pairs[j][4 * which + p] = there && d < a.head_dim ? *(const u32*)(from + d) : 0;
            }
        }
        q.sight[which] = there ? Sight{a.prefixes[row], a.bits_at[row], a.bits[row]} : Sight{0, 0, 0};
        q.largest[which] = MINUS_INFINITY;
        q.sum[which] = 0.0f;
    }
    UNROLL for (int h = 0; h < DIM / 64; h++) {
        UNROLL for (int u = 0; u < 8; u++) {
            UNROLL for (int i = 0; i < 4; i++) q.out[h][u][i] = 0.0f;
        }
    }
}

DEVICE bool sees(const Sight& s, const u32* bits, u32 token) {
    if (token < s.prefix) return true;
    u32 bit = token - s.prefix;
    return bit < s.bits && (bits[s.bits_at + bit / 32] >> (bit % 32) & 1);
}

// Adds the 16 tokens from `token` on to the queries' running attention: computes their scores and adds their weighted
// values. `keys` and `values` point to the rows of the first token, in global or shared memory.
template <int DIM>
DEVICE void take_in(Queries<DIM>& q, const AttendArgs& a, u32 all_see, u32 token, const bf16* keys, u32 key_stride,
                    const bf16* values, u32 value_stride, u32 g, u32 c) {
    Quad k[2][DIM / 32];
    UNROLL for (int t = 0; t < 2; t++) {
        UNROLL for (int j = 0; j < DIM / 32; j++) k[t][j] = load(keys + (8 * t + g) * key_stride + 32 * j + 8 * c);
    }
    // The values of tokens 2c, 2c + 1, 2c + 8, 2c + 9.
    Quad v[DIM / 64][4];
    UNROLL for (int h = 0; h < DIM / 64; h++) {
        UNROLL for (int i = 0; i < 4; i++) {
            v[h][i] = load(values + (2 * c + i % 2 + 8 * (i / 2)) * value_stride + 64 * h + 8 * g);
        }
    }
    float scores[2][4] = {};
    UNROLL for (int j = 0; j < DIM / 32; j++) {
        const u32(&p)[8] = q.pairs[j];
        const u32 first[4] = {p[0], p[4], p[1], p[5]}, second[4] = {p[2], p[6], p[3], p[7]};
        UNROLL for (int t = 0; t < 2; t++) {
            mma(scores[t], first, k[t][j].x, k[t][j].y);
            mma(scores[t], second, k[t][j].z, k[t][j].w);
        }
    }
    if (token + 16 > all_see) {
        UNROLL for (int t = 0; t < 2; t++) {
            UNROLL for (int i = 0; i < 4; i++) {
                if (!sees(q.sight[i / 2], a.words, token + 8 * t + 2 * c + i % 2)) scores[t][i] = MINUS_INFINITY;
            }
        }
    }
    // Four neighbouring lanes hold the 16 scores of a query.
    float scale[2];
    UNROLL for (int w = 0; w < 2; w++) {
        float most = fmaxf(fmaxf(scores[0][2 * w], scores[0][2 * w + 1]), fmaxf(scores[1][2 * w], scores[1][2 * w + 1]));
        most = fmaxf(most, __shfl_xor_sync(EVERY_LANE, most, 1));
        most = fmaxf(most, __shfl_xor_sync(EVERY_LANE, most, 2));
        most = fmaxf(most, q.largest[w]);
        // A query without a visible token so far has no largest score. Its shift is 0, and all its exponentials are 0.
        float shift = most == MINUS_INFINITY ? 0.0f : most * a.scale;
        scale[w] = exp2f(q.largest[w] * a.scale - shift);
        q.largest[w] = most;
        float sum = 0.0f;
        UNROLL for (int t = 0; t < 2; t++) {
            UNROLL for (int e = 0; e < 2; e++) {
                float x = exp2f(scores[t][2 * w + e] * a.scale - shift);
                scores[t][2 * w + e] = x;
                sum += x;
            }
        }
        // Each of the four lanes has a part of the sum. `add_up` adds the parts at the end; all have the same scale.
        q.sum[w] = q.sum[w] * scale[w] + sum;
    }
    // The outputs are rescaled only if a largest score changed, which is rare after the first few blocks.
    if (__any_sync(EVERY_LANE, scale[0] != 1.0f || scale[1] != 1.0f)) {
        UNROLL for (int h = 0; h < DIM / 64; h++) {
            UNROLL for (int u = 0; u < 8; u++) {
                UNROLL for (int i = 0; i < 4; i++) q.out[h][u][i] *= scale[i / 2];
            }
        }
    }
    const u32 weights[4] = {narrow2(scores[0][0], scores[0][1]), narrow2(scores[0][2], scores[0][3]),
                            narrow2(scores[1][0], scores[1][1]), narrow2(scores[1][2], scores[1][3])};
    UNROLL for (int h = 0; h < DIM / 64; h++) {
        const u32 words[4][4] = {{v[h][0].x, v[h][0].y, v[h][0].z, v[h][0].w},
                                 {v[h][1].x, v[h][1].y, v[h][1].z, v[h][1].w},
                                 {v[h][2].x, v[h][2].y, v[h][2].z, v[h][2].w},
                                 {v[h][3].x, v[h][3].y, v[h][3].z, v[h][3].w}};
        UNROLL for (int u = 0; u < 8; u++) {
            const u32 pick = u % 2 ? 0x7632 : 0x5410;
            u32 b0 = __byte_perm(words[0][u / 2], words[1][u / 2], pick);
            u32 b1 = __byte_perm(words[2][u / 2], words[3][u / 2], pick);
            mma(q.out[h][u], weights, b0, b1);
        }
    }
}

// Adds the parts of the sums of exponentials that the four lanes of a query hold.
template <int DIM> DEVICE void add_up(Queries<DIM>& q) {
    UNROLL for (int w = 0; w < 2; w++) {
        q.sum[w] += __shfl_xor_sync(EVERY_LANE, q.sum[w], 1);
        q.sum[w] += __shfl_xor_sync(EVERY_LANE, q.sum[w], 2);
    }
}

DEVICE bf16* out_of(const AttendArgs& a, const Tile& tile, u32 query, u32 kv_head) {
    query += tile.query;
    u32 row = tile.row + query / a.group;
    return a.out + (u64)row * a.out_stride + (u64)(kv_head * a.group + query % a.group) * a.head_dim;
}

// Split attention, for few queries and a long context: block of threads = tile (x), key-value head (y), stretch of the
// context (z). The warps take the stretch's KV blocks in turn. The block of threads that ends last adds the results of
// all stretches of the tile, in the order of the context.
template <int DIM> DEVICE void split(const AttendArgs& a) {
    wait_for_inputs();
    let_next_start();
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    Tile tile = tile_of(a, blockIdx.x);
    u32 kv_head = blockIdx.y;
    // The length of a tile's stretches depends only on the tile's context and on the grid's z dimension.
    u32 length = (tile.end + gridDim.z - 1) / gridDim.z;
    length = length < a.stretch ? a.stretch : (length + 63) / 64 * 64;
    u32 stretches = (tile.end + length - 1) / length;
    // Padding tiles have no queries.
    if (tile.queries == 0 || blockIdx.z >= stretches) return;
    u32 begins = blockIdx.z * length, ends = begins + length < tile.end ? begins + length : tile.end;
    Queries<DIM> q;
    begin(q, a, tile, 0, kv_head, g, c);
    for (u32 token = begins + 16 * warp; token < ends; token += 16 * WARPS) {
        u64 at = ((u64)a.words[tile.table + token / 16] * a.kv_heads + kv_head) * (16 * DIM);
        take_in<DIM>(q, a, tile.all_see, token, a.keys + at, DIM, a.values + at, DIM, g, c);
    }
    add_up(q);
    // Adds the warps' results in the order of the warps.
    SHARED float largest[WARPS][TILE], sums[WARPS][TILE];
    SHARED float out[TILE][DIM + 4];
    SHARED bool last;
    if (c == 0) {
        UNROLL for (int w = 0; w < 2; w++) {
            largest[warp][g + 8 * w] = q.largest[w];
            sums[warp][g + 8 * w] = q.sum[w];
        }
    }
    __syncthreads();
    for (u32 turn = 0; turn < WARPS; turn++) {
        if (turn == warp) {
            UNROLL for (int w = 0; w < 2; w++) {
                u32 i = g + 8 * w;
                float most = largest[0][i];
                for (u32 o = 1; o < WARPS; o++) most = fmaxf(most, largest[o][i]);
                float scale = most == MINUS_INFINITY ? 0.0f : exp2f((q.largest[w] - most) * a.scale);
                UNROLL for (int h = 0; h < DIM / 64; h++) {
                    UNROLL for (int u = 0; u < 8; u++) {
                        UNROLL for (int e = 0; e < 2; e++) {
                            float* to = &out[i][64 * h + 16 * c + 8 * e + u];
                            float x = q.out[h][u][2 * w + e] * scale;
                            *to = turn == 0 ? x : *to + x;
                        }
                    }
                }
            }
        }
        __syncthreads();
    }
    u32 place = (blockIdx.x * a.kv_heads + kv_head) * gridDim.z;
    for (u32 i = threadIdx.x; i < tile.queries * DIM; i += blockDim.x) {
        u32 query = i / DIM, d = i % DIM;
        float most = largest[0][query], sum = 0.0f;
        for (u32 w = 1; w < WARPS; w++) most = fmaxf(most, largest[w][query]);
        if (most != MINUS_INFINITY) {
            for (u32 w = 0; w < WARPS; w++) sum += sums[w][query] * exp2f((largest[w][query] - most) * a.scale);
        }
        if (stretches == 1) {
            if (d < a.head_dim) out_of(a, tile, query, kv_head)[d] = narrow(out[query][d] / sum);
        } else {
            u64 part = (u64)(place + blockIdx.z) * TILE + query;
            a.parts[part * (DIM + 2) + d] = out[query][d];
            if (d == 0) {
                a.parts[part * (DIM + 2) + DIM] = most;
                a.parts[part * (DIM + 2) + DIM + 1] = sum;
            }
        }
    }
    if (stretches == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        u32* done = a.done + blockIdx.x * a.kv_heads + kv_head;
        last = atomicAdd(done, 1u) == stretches - 1;
        // The count is 0 again for the next launch.
        if (last) *done = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (u32 i = threadIdx.x; i < tile.queries * a.head_dim; i += blockDim.x) {
        u32 query = i / a.head_dim, d = i % a.head_dim;
        const float* part = a.parts + ((u64)place * TILE + query) * (DIM + 2);
        const u32 step = TILE * (DIM + 2);
        float most = MINUS_INFINITY, sum = 0.0f, total = 0.0f;
        for (u32 s = 0; s < stretches; s++) most = fmaxf(most, load_shared_result(part + s * step + DIM));
        for (u32 s = 0; s < stretches; s++) {
            float scale = exp2f((load_shared_result(part + s * step + DIM) - most) * a.scale);
            sum += load_shared_result(part + s * step + DIM + 1) * scale;
            total += load_shared_result(part + s * step + d) * scale;
        }
        out_of(a, tile, query, kv_head)[d] = narrow(total / sum);
    }
}

#define CHUNK 64

// Distances between rows in shared memory, in numbers, with which the lanes' reads hit different banks.
#define KEY_STRIDE(dim) (dim + 32)
#define VALUE_STRIDE(dim) (dim + 8)

// Tiled attention, for many queries: block of threads = tile of 64 queries (x), key-value head (y). Each warp has 16
// queries. All warps read the same keys and values from shared memory, 64 tokens at a time, while the next 64 tokens
// are being copied.
template <int DIM> DEVICE void tile(const AttendArgs& a) {
    wait_for_inputs();
    let_next_start();
    DYNAMIC_SHARED(memory);
    bf16* keys = (bf16*)memory;
    bf16* values = keys + 2 * CHUNK * KEY_STRIDE(DIM);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    Tile tile = tile_of(a, blockIdx.x);
    if (tile.queries == 0) return;
    u32 kv_head = blockIdx.y;
    Queries<DIM> q;
    begin(q, a, tile, TILE * warp, kv_head, g, c);
    // One more than the last token that a query of this warp may attend to.
    u32 end = 0;
    UNROLL for (int w = 0; w < 2; w++) {
        u32 sees = q.sight[w].prefix + q.sight[w].bits;
        end = end < sees ? sees : end;
    }
    UNROLL for (int step = 16; step > 0; step /= 2) {
        u32 other = __shfl_xor_sync(EVERY_LANE, end, step);
        end = end < other ? other : end;
    }
    auto fetch = [&](u32 chunk) {
        const u32 parts = DIM / 8;
        for (u32 i = threadIdx.x; i < CHUNK * parts; i += blockDim.x) {
            u32 t = i / parts, part = i % parts, token = CHUNK * chunk + t;
            // Copies only KV blocks with a token that the tile may attend to, but these completely.
            if (token / 16 * 16 >= tile.end) break;
            u64 from = (((u64)a.words[tile.table + token / 16] * a.kv_heads + kv_head) * 16 + token % 16) * DIM + 8 * part;
            u32 place = chunk % 2 * CHUNK + t;
            copy_async(keys + place * KEY_STRIDE(DIM) + 8 * part, a.keys + from);
            copy_async(values + place * VALUE_STRIDE(DIM) + 8 * part, a.values + from);
        }
        copies_issued();
    };
    u32 chunks = (tile.end + CHUNK - 1) / CHUNK;
    fetch(0);
    for (u32 chunk = 0; chunk < chunks; chunk++) {
        if (chunk + 1 < chunks) {
            fetch(chunk + 1);
            copies_arrived<1>();
        } else {
            copies_arrived<0>();
        }
        __syncthreads();
        for (u32 block = 0; block < CHUNK / 16; block++) {
            u32 token = CHUNK * chunk + 16 * block;
            if (token >= end) break;
            u32 place = chunk % 2 * CHUNK + 16 * block;
            take_in<DIM>(q, a, tile.all_see, token, keys + place * KEY_STRIDE(DIM), KEY_STRIDE(DIM),
                         values + place * VALUE_STRIDE(DIM), VALUE_STRIDE(DIM), g, c);
        }
        // All warps must be done with this chunk: the copy of the chunk after the next one overwrites it.
        __syncthreads();
    }
    add_up(q);
    UNROLL for (int w = 0; w < 2; w++) {
        u32 query = TILE * warp + g + 8 * w;
        if (query >= tile.queries) continue;
        bf16* out = out_of(a, tile, query, kv_head);
        float share = 1.0f / q.sum[w];
        UNROLL for (int h = 0; h < DIM / 64; h++) {
            UNROLL for (int e = 0; e < 2; e++) {
                UNROLL for (int u = 0; u < 8; u += 2) {
                    u32 d = 64 * h + 16 * c + 8 * e + u;
                    if (d < a.head_dim) {
                        *(u32*)(out + d) = narrow2(q.out[h][u][2 * w + e] * share, q.out[h][u + 1][2 * w + e] * share);
                    }
                }
            }
        }
    }
}

KERNEL THREADS(128) attend_split_64(const AttendArgs a) { split<64>(a); }
KERNEL THREADS(128) attend_split_128(const AttendArgs a) { split<128>(a); }
KERNEL THREADS(128) attend_tile_64(const AttendArgs a) { tile<64>(a); }
KERNEL THREADS(128) attend_tile_128(const AttendArgs a) { tile<128>(a); }
