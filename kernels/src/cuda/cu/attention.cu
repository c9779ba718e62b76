// Paged attention for requests with different numbers of queries. A query attends to a prefix of its context and to a
// set of new tokens after the prefix (a path of a draft tree).
//
// A query is a (token, head) pair. The queries of one key-value head are numbered token by token, and 16 of them are a
// tile of the matrix units. KV blocks have 16 tokens; the key or value of a token is a row of `DIM` numbers.
//
// A lane (thread of a warp) reads 16 bytes at a time, which are 8 neighbouring dimensions of a key or of a value, and
// passes them to the matrix units without transposition. For keys this works because a score is a sum over dimensions,
// and the order of this sum is free as long as the queries use the same order. For values the 8 dimensions become 8
// different columns of the output.

#define TILE 16
#define WARPS 4
#define LOG2_E 1.4426950408889634f

// Distances between two rows of keys and between two rows of values in shared memory, in bf16 numbers. With these
// distances the reads of a warp's lanes hit different memory banks.
#define KEY_STRIDE(dim) (dim + 32)
#define VALUE_STRIDE(dim) (dim + 8)

// The tokens that one query attends to. Lane 4·g + c of a warp works for two queries of the tile: query g and query g +
// 8.
struct Sight {
    u32 prefix;
    // Bit mask of the tokens after the prefix: the mask has `bits` bits and begins at word `bits_at` of the list
    // `words`. The query attends to a token whose bit is set.
    u32 bits_at, bits;
};

template <int DIM> struct Queries {
    // The two queries of lane 4·g + c as pairs of bf16. First index: a group of 32 dimensions. Second index: four pairs
    // of query g, then four pairs of query g + 8.
    u32 pairs[DIM / 32][8];
    Sight sight[2];
    // Weighted sums of values for the two queries of lane 4·g + c, which are numbered w = 0 and 1. Dimension 64·h +
    // 16·c + 8·e + u of the output of query w is out[h][u][2·w + e].
    float out[DIM / 64][8][4];
    float largest[2], sum[2];
};

struct Tile {
    // `row` is the request's first row in the batch (a row is a new token). `query` is the index, among the request's
    // queries, of the tile's first query. `queries` is the number of queries in the tile.
    u32 row, query, queries;
    // `table` is the first word of the request's block table. No query of the tile attends to a token from `end` on.
    // All queries of the tile attend to the first `all_see` tokens of the context.
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
                // A head has an even width and begins at an even index, so a pair of bf16 is one aligned 32-bit word.
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

// Adds the `8 * T` tokens from `token` on to the running attention of the lane's queries: computes the scores of these
// tokens and adds their weighted values. `keys` and `values` point to the rows of token `token` in shared memory.
template <int DIM, int T>
DEVICE void take_in(Queries<DIM>& q, const AttendArgs& a, u32 all_see, u32 token, const bf16* keys, const bf16* values,
                    u32 g, u32 c) {
    float scores[T][4] = {};
    UNROLL for (int j = 0; j < DIM / 32; j++) {
        const u32(&p)[8] = q.pairs[j];
        const u32 first[4] = {p[0], p[4], p[1], p[5]}, second[4] = {p[2], p[6], p[3], p[7]};
        Quad k[T];
        UNROLL for (int t = 0; t < T; t++) k[t] = load(keys + (8 * t + g) * KEY_STRIDE(DIM) + 32 * j + 8 * c);
        UNROLL for (int t = 0; t < T; t++) mma(scores[t], first, k[t].x, k[t].y);
        UNROLL for (int t = 0; t < T; t++) mma(scores[t], second, k[t].z, k[t].w);
    }
    if (token + 8 * T > all_see) {
        UNROLL for (int t = 0; t < T; t++) {
            UNROLL for (int i = 0; i < 4; i++) {
                if (!sees(q.sight[i / 2], a.words, token + 8 * t + 2 * c + i % 2)) scores[t][i] = MINUS_INFINITY;
            }
        }
    }
    // Four neighbouring lanes together hold the scores of a query.
    float scale[2];
    UNROLL for (int w = 0; w < 2; w++) {
        float most = fmaxf(scores[0][2 * w], scores[0][2 * w + 1]);
        UNROLL for (int t = 1; t < T; t++) most = fmaxf(most, fmaxf(scores[t][2 * w], scores[t][2 * w + 1]));
        most = fmaxf(most, __shfl_xor_sync(EVERY_LANE, most, 1));
        most = fmaxf(most, __shfl_xor_sync(EVERY_LANE, most, 2));
        most = fmaxf(most, q.largest[w]);
        // A query that has not attended to any token yet has no largest score. Its shift is 0, and all its exponentials
        // are 0.
        float shift = most == MINUS_INFINITY ? 0.0f : most * a.scale;
        scale[w] = power_of_2(q.largest[w] * a.scale - shift);
        q.largest[w] = most;
        float sum = 0.0f;
        UNROLL for (int t = 0; t < T; t++) {
            UNROLL for (int e = 0; e < 2; e++) {
                float x = power_of_2(scores[t][2 * w + e] * a.scale - shift);
                scores[t][2 * w + e] = x;
                sum += x;
            }
        }
        // Four lanes work on a query, and each has a part of the query's sum of exponentials. All four parts have the
        // same scale; `add_up` adds them at the end.
        q.sum[w] = q.sum[w] * scale[w] + sum;
    }
    // The outputs are rescaled only if the largest score of a query changed, which is rare after the first few KV
    // blocks.
    if (__any_sync(EVERY_LANE, scale[0] != 1.0f || scale[1] != 1.0f)) {
        UNROLL for (int h = 0; h < DIM / 64; h++) {
            UNROLL for (int u = 0; u < 8; u++) {
                UNROLL for (int i = 0; i < 4; i++) q.out[h][u][i] *= scale[i / 2];
            }
        }
    }
    UNROLL for (int b = 0; b < T / 2; b++) {
        const float(&even)[4] = scores[2 * b], (&odd)[4] = scores[2 * b + 1];
        const u32 weights[4] = {narrow2(even[0], even[1]), narrow2(even[2], even[3]), narrow2(odd[0], odd[1]),
                                narrow2(odd[2], odd[3])};
        UNROLL for (int h = 0; h < DIM / 64; h++) {
            // The values that lane 4·g + c reads: of the KV block's 16 tokens, tokens 2c, 2c + 1, 2c + 8 and 2c + 9.
            u32 words[4][4];
            UNROLL for (int i = 0; i < 4; i++) {
                u32 row = 16 * b + 2 * c + i % 2 + 8 * (i / 2);
                Quad v = load(values + row * VALUE_STRIDE(DIM) + 64 * h + 8 * g);
                words[i][0] = v.x, words[i][1] = v.y, words[i][2] = v.z, words[i][3] = v.w;
            }
            UNROLL for (int u = 0; u < 8; u++) {
                const u32 pick = u % 2 ? 0x7632 : 0x5410;
                u32 b0 = __byte_perm(words[0][u / 2], words[1][u / 2], pick);
                u32 b1 = __byte_perm(words[2][u / 2], words[3][u / 2], pick);
                mma(q.out[h][u], weights, b0, b1);
            }
        }
    }
}

// Four lanes work on a query, and each holds a part of the query's sum of exponentials. Adds these parts and gives the
// sum to all four lanes.
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

#define STAGES 2

// Split attention, for few queries and a long context. A context is divided into parts of neighbouring tokens, the
// stretches. A thread block handles one tile of queries (grid x), one key-value head (y) and one stretch (z). The warps
// take the KV blocks of the stretch in turn. Each warp has `STAGES` places for a KV block in shared memory: it copies
// the next KV block while it computes with the present one. Of the thread blocks for one tile and one key-value head,
// the block that finishes last adds the results of all stretches, in the order of the context.
template <int DIM> DEVICE void split(const AttendArgs& a) {
    let_next_start();
    wait_for_inputs();
    DYNAMIC_SHARED(memory);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    Tile tile = tile_of(a, blockIdx.x);
    u32 kv_head = blockIdx.y;
    // The length of a tile's stretches (parts of the context) depends only on the length of the tile's context and on
    // the grid's z dimension.
    u32 length = (tile.end + gridDim.z - 1) / gridDim.z;
    length = length < a.stretch ? a.stretch : (length + 63) / 64 * 64;
    u32 stretches = (tile.end + length - 1) / length;
    // A padding tile has no queries, so its thread blocks have nothing to do.
    if (tile.queries == 0 || blockIdx.z >= stretches) return;
    u32 begins = blockIdx.z * length, ends = begins + length < tile.end ? begins + length : tile.end;
    const u32 values_at = 16 * KEY_STRIDE(DIM), place_size = values_at + 16 * VALUE_STRIDE(DIM);
    bf16* places = (bf16*)memory + warp * STAGES * place_size;
    const u32* table = a.words + tile.table;
    // The number of the KV block that `fetch` copies next is read from the block table one turn before it is needed.
    u32 fetched = begins + 16 * warp, turn = 0;
    u32 kv_block = fetched < ends ? table[fetched / 16] : 0;
    auto fetch = [&]() {
        if (fetched < ends) {
            u64 from = ((u64)kv_block * a.kv_heads + kv_head) * (16 * DIM);
            bf16* to = places + turn % STAGES * place_size;
            UNROLL for (int i = 0; i < DIM / 16; i++) {
                u32 part = lane + WARP * i, row = part / (DIM / 8), column = 8 * (part % (DIM / 8));
                copy_async(to + row * KEY_STRIDE(DIM) + column, a.keys + from + 8 * part);
                copy_async(to + values_at + row * VALUE_STRIDE(DIM) + column, a.values + from + 8 * part);
            }
            fetched += 16 * WARPS;
            if (fetched < ends) kv_block = table[fetched / 16];
        }
        turn++;
        copies_issued();
    };
    UNROLL for (int i = 0; i < STAGES - 1; i++) fetch();
    Queries<DIM> q;
    begin(q, a, tile, 0, kv_head, g, c);
    u32 here = 0;
    for (u32 token = begins + 16 * warp; token < ends; token += 16 * WARPS) {
        copies_arrived<STAGES - 2>();
        // After this barrier, the copies of all lanes of the warp have arrived, and no lane reads the place that
        // `fetch` overwrites.
        __syncwarp();
        fetch();
        const bf16* keys = places + here % STAGES * place_size;
        take_in<DIM, 2>(q, a, tile.all_see, token, keys, keys + values_at, g, c);
        here++;
    }
    add_up(q);
    // The outputs of the warps take the shared memory of the KV blocks, which no warp reads after this barrier.
    __syncthreads();
    SHARED float largest[WARPS][TILE], sums[WARPS][TILE];
    SHARED bool last;
    float(*out)[TILE][DIM] = (float(*)[TILE][DIM])memory;
    UNROLL for (int w = 0; w < 2; w++) {
        u32 i = g + 8 * w;
        if (i >= tile.queries) continue;
        if (c == 0) {
            largest[warp][i] = q.largest[w];
            sums[warp][i] = q.sum[w];
        }
        UNROLL for (int h = 0; h < DIM / 64; h++) {
            UNROLL for (int e = 0; e < 2; e++) {
                UNROLL for (int u = 0; u < 8; u++) out[warp][i][64 * h + 16 * c + 8 * e + u] = q.out[h][u][2 * w + e];
            }
        }
    }
    __syncthreads();
    // Adds the results of the four warps, in the order of the warps.
    u32 place = (blockIdx.x * a.kv_heads + kv_head) * gridDim.z;
    for (u32 i = threadIdx.x; i < tile.queries * DIM; i += blockDim.x) {
        u32 query = i / DIM, d = i % DIM;
        float most = largest[0][query], sum = 0.0f, total = 0.0f;
        for (u32 w = 1; w < WARPS; w++) most = fmaxf(most, largest[w][query]);
        if (most != MINUS_INFINITY) {
            for (u32 w = 0; w < WARPS; w++) {
                float scale = power_of_2((largest[w][query] - most) * a.scale);
                sum += sums[w][query] * scale;
                total += out[w][query][d] * scale;
            }
        }
        if (stretches == 1) {
            if (d < a.head_dim) out_of(a, tile, query, kv_head)[d] = narrow(total / sum);
        } else {
            float* part = a.parts + ((u64)(place + blockIdx.z) * TILE + query) * (DIM + 2);
            part[d] = total;
            if (d == 0) {
                part[DIM] = most;
                part[DIM + 1] = sum;
            }
        }
    }
    if (stretches == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        u32* done = a.done + blockIdx.x * a.kv_heads + kv_head;
        last = atomicAdd(done, 1u) == stretches - 1;
        // The last thread block resets the count of finished stretches to 0 for the next launch.
        if (last) *done = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    // Adds the results of the tile's stretches (parts of the context). All threads together first read the largest
    // scores and the sums of exponentials; both arrays have the layout [query][stretch].
    float* stretch_largest = (float*)memory;
    float* stretch_sums = stretch_largest + tile.queries * stretches;
    const float* parts = a.parts + (u64)place * TILE * (DIM + 2);
    const u32 step = TILE * (DIM + 2);
    for (u32 i = threadIdx.x; i < tile.queries * stretches; i += blockDim.x) {
        const float* part = parts + i % stretches * step + i / stretches * (DIM + 2);
        stretch_largest[i] = load_shared_result(part + DIM);
        stretch_sums[i] = load_shared_result(part + DIM + 1);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < tile.queries * a.head_dim; i += blockDim.x) {
        u32 query = i / a.head_dim, d = i % a.head_dim;
        const float* largest_of = stretch_largest + query * stretches;
        const float* sum_of = stretch_sums + query * stretches;
        float most = MINUS_INFINITY, sum = 0.0f, total = 0.0f;
        for (u32 s = 0; s < stretches; s++) most = fmaxf(most, largest_of[s]);
        UNROLL_BY(8) for (u32 s = 0; s < stretches; s++) {
            float scale = power_of_2((largest_of[s] - most) * a.scale);
            sum += sum_of[s] * scale;
            total += load_shared_result(parts + s * step + query * (DIM + 2) + d) * scale;
        }
        out_of(a, tile, query, kv_head)[d] = narrow(total / sum);
    }
}

#define CHUNK 64

// Tiled attention, for many queries. A thread block handles one tile of 64 queries (grid x) and one key-value head (y).
// Each warp has 16 queries. All warps read the same keys and values from shared memory, 64 tokens at a time, while the
// next 64 tokens are being copied.
template <int DIM> DEVICE void tile(const AttendArgs& a) {
    let_next_start();
    wait_for_inputs();
    DYNAMIC_SHARED(memory);
    bf16* keys = (bf16*)memory;
    bf16* values = keys + 2 * CHUNK * KEY_STRIDE(DIM);
    u32 lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, g = lane / 4, c = lane % 4;
    Tile tile = tile_of(a, blockIdx.x);
    if (tile.queries == 0) return;
    u32 kv_head = blockIdx.y;
    Queries<DIM> q;
    begin(q, a, tile, TILE * warp, kv_head, g, c);
    // One more than the largest context index to which a query of this warp may attend.
    u32 end = 0;
    UNROLL for (int w = 0; w < 2; w++) {
        u32 sees = q.sight[w].prefix + q.sight[w].bits;
        end = end < sees ? sees : end;
    }
    UNROLL for (int step = 16; step > 0; step /= 2) {
        u32 other = __shfl_xor_sync(EVERY_LANE, end, step);
        end = end < other ? other : end;
    }
    const u32* table = a.words + tile.table;
    // The numbers of the KV blocks that `fetch` copies next are read from the block table one chunk (64 tokens) before
    // they are needed.
    u32 kv_blocks[CHUNK / 16];
    auto read_table = [&](u32 chunk) {
        UNROLL for (int b = 0; b < CHUNK / 16; b++) {
            u32 token = CHUNK * chunk + 16 * b;
            kv_blocks[b] = token < tile.end ? table[token / 16] : 0;
        }
    };
    auto fetch = [&](u32 chunk) {
        const u32 parts = DIM / 8, rows = 32 * WARPS / parts;
        u32 t = threadIdx.x / parts, column = 8 * (threadIdx.x % parts);
        UNROLL for (int n = 0; n < CHUNK / rows; n++) {
            u32 row = rows * n + t, block = rows * n / 16;
            // Only KV blocks with a token before `tile.end` are copied, and these blocks completely: no query of the
            // tile attends to tokens from `tile.end` on.
            if (CHUNK * chunk + 16 * block >= tile.end) break;
            u64 from = (((u64)kv_blocks[block] * a.kv_heads + kv_head) * 16 + row % 16) * DIM + column;
            u32 place = chunk % 2 * CHUNK + row;
            copy_async(keys + place * KEY_STRIDE(DIM) + column, a.keys + from);
            copy_async(values + place * VALUE_STRIDE(DIM) + column, a.values + from);
        }
        copies_issued();
        read_table(chunk + 1);
    };
    u32 chunks = (tile.end + CHUNK - 1) / CHUNK;
    read_table(0);
    fetch(0);
    for (u32 chunk = 0; chunk < chunks; chunk++) {
        if (chunk + 1 < chunks) {
            fetch(chunk + 1);
            copies_arrived<1>();
        } else {
            copies_arrived<0>();
        }
        __syncthreads();
        for (u32 token = CHUNK * chunk; token < CHUNK * (chunk + 1) && token < end; token += 32) {
            u32 place = token % (2 * CHUNK);
            const bf16 *k = keys + place * KEY_STRIDE(DIM), *v = values + place * VALUE_STRIDE(DIM);
            // The 32 tokens are in two KV blocks. The second block may not have been copied, if all its tokens are from
            // `end` on.
            if (token + 16 < end) {
                take_in<DIM, 4>(q, a, tile.all_see, token, k, v, g, c);
            } else {
                take_in<DIM, 2>(q, a, tile.all_see, token, k, v, g, c);
            }
        }
        // All warps must be done with this chunk (64 tokens), because the copy of the chunk after the next one
        // overwrites its memory.
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
KERNEL THREADS_OF_BLOCKS(128, ATTENTION_BLOCKS) attend_split_128(const AttendArgs a) { split<128>(a); }
KERNEL THREADS(128) attend_tile_64(const AttendArgs a) { tile<64>(a); }
KERNEL THREADS_OF_BLOCKS(128, 2) attend_tile_128(const AttendArgs a) { tile<128>(a); }
