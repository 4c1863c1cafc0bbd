// One step of a GPT on the CPU: rows in, logits out, keys and values into the rows' own caches.
//
// A row is one position of one text: its input, its position, its cache. A batch of texts is a row
// of each; a prompt is as many rows that share a cache. What is computed for a row depends on the
// row and on its cache alone. Axes as in model.py; a cache is (L, 2, H, capacity, D).

#if defined(_OPENMP)
extern "C" int omp_get_thread_num();  // declared here: not every machine has omp.h
#endif

#include "attention.h"

namespace nanogpt {

struct Matrix {
    const void* weight;  // [out, in]
    const float* scale;  // of each row of int8 weights, else null
    const float* bias;   // or null
    int64_t out, in;
};

struct Norm {
    const float *weight, *bias;
};

struct Layer {
    Norm ln_1, ln_2;
    Matrix c_attn, attn_proj, c_fc, mlp_proj;
};

struct Model {
    int64_t n_layer, n_head, n_embd, gelu_tanh;
    const Layer* layers;
    Norm ln_f;
    Matrix lm_head;
};

struct Rows {
    int64_t count;
    float* x;                    // (count, C): the embedded rows; the residual stream of the step
    const int64_t* position;     // (count)
    float* const* cache;         // (count)
    const int64_t* capacity;     // (count) of the row's cache, in positions
    int64_t wanted_count;
    const int64_t* wanted;       // rows whose logits are wanted
    float* logits;               // (wanted_count, V)
    float* scratch;              // scratch_floats(...)
    int64_t longest;             // 1 + the largest position
};

namespace {

#if defined(_OPENMP)
inline int thread_number() { return omp_get_thread_num(); }
#else
inline int thread_number() { return 0; }
#endif

constexpr float EPSILON = 1e-5f;
constexpr int64_t PRIVATE_ROWS = 4;  // so few are normalised by every thread for itself
constexpr int64_t CHUNK_STEP = 24;   // a multiple of every tile's height

void normalise(const Norm& norm, const float* x, float* out, int64_t C) {
    Vec sums = {};
    int64_t c = 0;
    for (; c + LANES <= C; c += LANES) sums += load(x + c);
    if (c < C) sums += load_part(x + c, C - c);
    const float mean = total(sums) / C;
    sums = Vec{};
    for (c = 0; c + LANES <= C; c += LANES) {
        const Vec off = load(x + c) - mean;
        sums = fused(off, off, sums);
    }
    float squares = total(sums);
    for (int64_t i = c; i < C; i++) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / std::sqrt(squares / C + EPSILON);
    for (int64_t i = 0; i < C; i++) {
        const float y = (x[i] - mean) * scale * norm.weight[i];
        out[i] = norm.bias ? y + norm.bias[i] : y;
    }
}

// Fills `shared`, or the thread's own `mine` where that is cheaper than waiting for each other.
const float* normalise_all(const Norm& norm, const float* x, int64_t count, int64_t C,
                           float* shared, float* mine) {
    if (count <= PRIVATE_ROWS) {
        for (int64_t n = 0; n < count; n++) normalise(norm, x + n * C, mine + n * C, C);
        return mine;
    }
#pragma omp for schedule(static)
    for (int64_t n = 0; n < count; n++) normalise(norm, x + n * C, shared + n * C, C);
    return shared;
}

// Runs then(n, r, run of outputs) for each chunk of outputs, on whichever thread is free.
template <class W, class Then>
void linear(const Matrix& m, const float* x, int64_t count, float* out, int threads, Then then) {
    int64_t chunk = m.out / (8 * threads) / CHUNK_STEP * CHUNK_STEP;
    chunk = chunk < CHUNK_STEP ? CHUNK_STEP : chunk > 4 * CHUNK_STEP ? 4 * CHUNK_STEP : chunk;
#pragma omp for schedule(dynamic)
    for (int64_t r = 0; r < m.out; r += chunk) {
        const int64_t R = m.out - r < chunk ? m.out - r : chunk;
        product((const W*)m.weight + r * m.in, x, count, m.in, R, out + r, m.out);
        for (int64_t n = 0; n < count; n++) {
            float* run = out + n * m.out + r;
            if (m.scale)
                for (int64_t i = 0; i < R; i++) run[i] *= m.scale[r + i];
            if (m.bias)
                for (int64_t i = 0; i < R; i++) run[i] += m.bias[r + i];
            then(n, r, run, R);
        }
    }
}

// Attends from row n and the rows after it that follow it in its text; returns how many.
int64_t attend_some(const Rows& rows, int64_t place, int64_t H, int64_t D, int64_t n, int64_t end,
                    const float* qkv, int64_t column, float* scores, float* mixed) {
    const int64_t C = H * D, size = rows.capacity[n] * D, T = rows.position[n] + 1;
    const int64_t room = rows.longest + LANES;
    const float* keys = rows.cache[n] + place * size;
    const float* q = qkv + n * 3 * C + column;
    float* out = mixed + n * C + column;
    bool together = n + GROUP <= end;
    for (int64_t i = 1; together && i < GROUP; i++)
        together = rows.cache[n + i] == rows.cache[n] && rows.position[n + i] == T - 1 + i;
    if (together)
        attend<GROUP>(q, 3 * C, keys, keys + H * size, T, D, scores, room, out, C);
    else
        attend<1>(q, 3 * C, keys, keys + H * size, T, D, scores, room, out, C);
    return together ? GROUP : 1;
}

struct Scratch {
    float *normal, *qkv, *mixed, *hidden, *mine, *scores;
};

Scratch divide(float* at, int64_t count, int64_t C, int threads) {
    Scratch s;
    s.normal = at;
    s.qkv = s.normal + count * C;
    s.mixed = s.qkv + count * 3 * C;
    s.hidden = s.mixed + count * C;
    s.mine = s.hidden + count * 4 * C;
    s.scores = s.mine + threads * PRIVATE_ROWS * C;
    return s;
}

template <class W>
void run(const Model& model, const Rows& rows, int threads) {
    const int64_t C = model.n_embd, H = model.n_head, D = C / H, N = rows.count;
    const Scratch s = divide(rows.scratch, N, C, threads);
    float* const x = rows.x;
#pragma omp parallel num_threads(threads)
    {
        const int thread = thread_number();
        float* const mine = s.mine + thread * PRIVATE_ROWS * C;
        float* const scores = s.scores + thread * GROUP * (rows.longest + LANES);
        const auto add = [&](int64_t n, int64_t r, const float* run, int64_t R) {
            for (int64_t i = 0; i < R; i++) x[n * C + r + i] += run[i];
        };
        for (int64_t l = 0; l < model.n_layer; l++) {
            const Layer& layer = model.layers[l];
            const float* normal = normalise_all(layer.ln_1, x, N, C, s.normal, mine);
            const auto keep = [&](int64_t n, int64_t r, const float* run, int64_t R) {
                for (int64_t i = 0; i < R;) {  // a head's columns at a time
                    const int64_t column = r + i, head = column / D, left = D - column % D;
                    const int64_t width = left < R - i ? left : R - i;
                    if (head >= H) {  // (key or value, head), behind the queries
                        const int64_t place = (l * 2 * H + head - H) * rows.capacity[n];
                        std::memcpy(rows.cache[n] + (place + rows.position[n]) * D + column % D,
                                    run + i, width * sizeof(float));
                    }
                    i += width;
                }
            };
            linear<W>(layer.c_attn, normal, N, s.qkv, threads, keep);
            const int64_t groups = (N + GROUP - 1) / GROUP;
#pragma omp for schedule(dynamic)
            for (int64_t task = 0; task < H * groups; task++) {
                const int64_t head = task / groups, end = (task % groups + 1) * GROUP;
                for (int64_t n = task % groups * GROUP; n < end && n < N;)
                    n += attend_some(rows, l * 2 * H + head, H, D, n, end < N ? end : N, s.qkv,
                                     head * D, scores, s.mixed);
            }
            linear<W>(layer.attn_proj, s.mixed, N, s.normal, threads, add);
            normal = normalise_all(layer.ln_2, x, N, C, s.normal, mine);
            const auto activate = [&](int64_t, int64_t, float* run, int64_t R) {
                for (int64_t i = 0; i < R; i += LANES) {
                    const int64_t n = R - i < LANES ? R - i : LANES;
                    const Vec in = n == LANES ? load(run + i) : load_part(run + i, n);
                    store_part(run + i, model.gelu_tanh ? gelu_tanh(in) : gelu(in), n);
                }
            };
            linear<W>(layer.c_fc, normal, N, s.hidden, threads, activate);
            linear<W>(layer.mlp_proj, s.hidden, N, s.normal, threads, add);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows.wanted_count; i++)
            normalise(model.ln_f, x + rows.wanted[i] * C, s.normal + i * C, C);
        linear<W>(model.lm_head, s.normal, rows.wanted_count, rows.logits, threads,
                  [](int64_t, int64_t, float*, int64_t) {});
    }
}

}  // namespace
}  // namespace nanogpt

extern "C" {

int64_t nanogpt_scratch_floats(int64_t count, int64_t C, int64_t longest, int threads) {
    using namespace nanogpt;
    return count * 9 * C + threads * (PRIVATE_ROWS * C + GROUP * (longest + LANES));
}

// Reads a buffer of floats as fast as it can, for what it takes; returns their sum.
float nanogpt_read(const float* from, int64_t count, int threads) {
    using namespace nanogpt;
    constexpr int64_t STREAMS = 8, PART = 4096 * STREAMS * LANES;
    float sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
    for (int64_t start = 0; start < count; start += PART) {
        Vec sums[STREAMS] = {};
        const int64_t end = start + PART < count ? start + PART : count;
        for (int64_t i = start; i + STREAMS * LANES <= end; i += STREAMS * LANES) {
            __builtin_prefetch(from + i + 2048);
            for (int64_t s = 0; s < STREAMS; s++) sums[s] += load(from + i + s * LANES);
        }
        for (int64_t s = 0; s < STREAMS; s++) sum += total(sums[s]);
    }
    return sum;
}

// type: 0 float32, 1 float16, 2 bfloat16, 3 int8 with a scale a row.
void nanogpt_step(const nanogpt::Model* model, const nanogpt::Rows* rows, int type, int threads) {
    using namespace nanogpt;
    switch (type) {
        case 0: run<float>(*model, *rows, threads); break;
        case 1: run<Half>(*model, *rows, threads); break;
        case 2: run<Brain>(*model, *rows, threads); break;
        case 3: run<int8_t>(*model, *rows, threads); break;
    }
}
}
