// Kernels that compute probabilities of, and choose from, the tokens of the vocabulary. Unless a kernel says otherwise,
// one thread block handles one row of logits or probabilities. Rows begin at multiples of 16 bytes.

// Calls f(token, number) for each number of the row that belongs to this thread. The thread reads four numbers at a
// time where possible.
template <class F> DEVICE void each(const float* row, u32 width, F f) {
    for (u32 q = threadIdx.x; q < width / 4; q += blockDim.x) {
        Floats v = ((const Floats*)row)[q];
        f(4 * q, v.x);
        f(4 * q + 1, v.y);
        f(4 * q + 2, v.z);
        f(4 * q + 3, v.w);
    }
    u32 last = width / 4 * 4 + threadIdx.x;
    if (last < width) f(last, row[last]);
}

// Computes out = softmax(logits / temperature) for each row.
KERNEL THREADS(1024) softmax(const SoftmaxArgs a) {
    let_next_start();
    wait_for_inputs();
    SHARED float scratch[MOST_WARPS];
    SHARED Best bests[MOST_WARPS];
    const float* logits = a.logits + (u64)blockIdx.x * a.in_stride;
    float* out = a.out + (u64)blockIdx.x * a.out_stride;
    Best best = {MINUS_INFINITY, 0};
    each(logits, a.width, [&](u32, float logit) { best.logit = fmaxf(best.logit, logit); });
    float largest = block_best(best, bests).logit / a.temperature;
    float sum = 0.0f;
    each(logits, a.width, [&](u32 t, float logit) {
        float e = expf(logit / a.temperature - largest);
        out[t] = e;
        sum += e;
    });
    float scale = 1.0f / block_sum(sum, scratch);
    // Each thread reads only numbers of `out` that it wrote itself, so no synchronisation is needed.
    each(out, a.width, [&](u32 t, float e) { out[t] = e * scale; });
}

// Writes the k most likely tokens of each row, the most likely first, and their probabilities.
KERNEL THREADS(1024) top_k(const TopKArgs a) {
    let_next_start();
    wait_for_inputs();
    SHARED float scratch[MOST_WARPS];
    SHARED Best bests[MOST_WARPS];
    const float* logits = a.logits + (u64)blockIdx.x * a.stride;
    Best best = {MINUS_INFINITY, 0xffffffffu};
    each(logits, a.width, [&](u32 t, float logit) {
        if (before(logit, t, best.logit, best.token)) best = Best{logit, t};
    });
    best = block_best(best, bests);
    float largest = best.logit, sum = 0.0f;
    each(logits, a.width, [&](u32, float logit) { sum += expf(logit - largest); });
    sum = block_sum(sum, scratch);
    for (u32 n = 0;; n++) {
        if (threadIdx.x == 0) {
            // If all logits of a row are NaN, no token is the best. The result is then token 0, as on the host.
            a.tokens[blockIdx.x * a.k + n] = best.token < a.width ? best.token : 0;
            a.probabilities[blockIdx.x * a.k + n] = expf(best.logit - largest) / sum;
        }
        if (n + 1 == a.k) return;
        // The next token is the best of the tokens that come after `last` (the token found before) in falling order of
        // logits.
        Best last = best;
        best = Best{MINUS_INFINITY, 0xffffffffu};
        each(logits, a.width, [&](u32 t, float logit) {
            if (before(last.logit, last.token, logit, t) && before(logit, t, best.logit, best.token)) {
                best = Best{logit, t};
            }
        });
        best = block_best(best, bests);
    }
}

// The weight with which token t is drawn. `p` has the target's probabilities, `q` the draft model's. The weight is p(t)
// if `q` is null, else max(0, p(t) − q(t)).
DEVICE double weight(const float* p, const float* q, u32 t) {
    double w = q ? (double)p[t] - (double)q[t] : (double)p[t];
    return w > 0.0 ? w : 0.0;
}

// Rejection sampling over chains of draft tokens (see the host's `accept::reject`); a thread block handles one chain.
// For a chain of n tokens, `units` has 2·(n + 1) uniform random numbers: two for each token, of which the first decides
// whether the token is accepted and the second draws its replacement; then an unused number, and a number that draws
// the token after the chain. The results per chain are the number of accepted tokens, the next token, and the target's
// probability of the next token.
KERNEL THREADS(512) reject(const RejectArgs a) {
    let_next_start();
    wait_for_inputs();
    SHARED u32 kept;
    SHARED double sums[512];
    const u32* chain = a.chains + 4 * blockIdx.x;
    u32 target = chain[0], draft = chain[1], first = chain[2], count = chain[3];
    const double* units = a.units + 2 * ((u64)first + blockIdx.x);
    if (threadIdx.x == 0) {
        u32 i = 0;
        for (; i < count; i++) {
            u32 token = a.tokens[first + i];
            double p = a.target[(u64)(target + i) * a.target_stride + token];
            double q = a.draft[(u64)(draft + i) * a.draft_stride + token];
            if (!(units[2 * i] * q < p)) break;
        }
        kept = i;
    }
    __syncthreads();
    const float* p = a.target + (u64)(target + kept) * a.target_stride;
    const float* q = kept < count ? a.draft + (u64)(draft + kept) * a.draft_stride : nullptr;
    // Each thread sums the weights of a range of `stretch` tokens. Thread 0 then finds the range in which the draw
    // falls, and the token in this range.
    u32 stretch = (a.width + blockDim.x - 1) / blockDim.x;
    u32 begin = threadIdx.x * stretch, end = begin + stretch < a.width ? begin + stretch : a.width;
    double sum = 0.0;
    for (u32 t = begin; t < end; t++) sum += weight(p, q, t);
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (u32 s = 0; s < blockDim.x; s++) total += sums[s];
        double rest = units[2 * kept + 1] * total;
        // `rest` is the random draw, less the sums of the ranges before the present range. Because of rounding, it may
        // not be smaller than the sum of any range. Then the last range with a positive weight is taken.
        u32 at = 0;
        double left = rest;
        for (u32 s = 0; s < blockDim.x; s++) {
            if (sums[s] > 0.0) {
                at = s;
                left = rest;
                if (rest < sums[s]) break;
            }
            rest -= sums[s];
        }
        u32 next = 0;
        u32 from = at * stretch, to = from + stretch < a.width ? from + stretch : a.width;
        for (u32 t = from; t < to; t++) {
            double w = weight(p, q, t);
            if (w > 0.0) {
                next = t;
                if (left < w) break;
            }
            left -= w;
        }
        a.out[3 * blockIdx.x] = kept;
        a.out[3 * blockIdx.x + 1] = next;
        a.out[3 * blockIdx.x + 2] = __float_as_uint(p[next]);
    }
}

// Computes a number for each pair of rows: p of the target's and q of the draft model's probabilities. The number is
// the divergence, the sum of p·ln(p / q) over the vocabulary. Without a draft model it is the entropy, the sum of
// −p·ln(p). A thread block handles one pair.
KERNEL THREADS(512) divergence(const DivergenceArgs a) {
    let_next_start();
    wait_for_inputs();
    SHARED double sums[512];
    const float* p = a.target + (u64)a.pairs[2 * blockIdx.x] * a.target_stride;
    const float* q = a.draft ? a.draft + (u64)a.pairs[2 * blockIdx.x + 1] * a.draft_stride : nullptr;
    double sum = 0.0;
    for (u32 t = threadIdx.x; t < a.width; t += blockDim.x) {
        double x = p[t];
        // If the draft model's probability of a token is 0, the smallest normal f32 takes its place.
        if (x > 0.0) sum += q ? x * log(x / (double)fmaxf(q[t], 1.17549435e-38f)) : -x * log(x);
    }
    sums[threadIdx.x] = sum;
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) a.out[blockIdx.x] = sums[0];
}
