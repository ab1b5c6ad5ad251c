// Queries and keys normalized where asked and rotated; keys and values written to the cache.
#include "contract/isa_functions.h"
#include "elements.h"

namespace inferno::INFERNO_ISA {
namespace {

void load_head(const Rows& x, std::int64_t t, std::int64_t first, std::int64_t head_dim,
               float* head) {
    for (std::int64_t d = 0; d < head_dim; ++d) head[d] = read(x, t, first + d);
}

void norm_head(const Optional& weight, float eps, Type type, std::int64_t head_dim, float* head) {
    if (!weight.data) return;
    float squares = 0.0f;
    for (std::int64_t d = 0; d < head_dim; ++d) squares += head[d] * head[d];
    const float scale =
        1.0f / __builtin_sqrtf(squares / static_cast<float>(head_dim) + eps);
    for (std::int64_t d = 0; d < head_dim; ++d) {
        const float normalized = rounded_to(type, head[d] * scale);
        head[d] = rounded_to(type, weight_at(weight, d) * normalized);
    }
}

void rotate_head(const float* cosines, Type type, std::int64_t head_dim, float* head) {
    const std::int64_t half = head_dim / 2;
    for (std::int64_t i = 0; i < half; ++i) {
        const float c = cosines[i], s = cosines[half + i];
        const float low = head[i], high = head[half + i];
        head[i] = rounded_to(type, low * c - high * s);
        head[half + i] = rounded_to(type, high * c + low * s);
    }
}

// Write a head from element `first` on, its dimensions `stride` apart. In int8 the largest
// magnitude becomes 127, a head of next to nothing zeros, and what isn't finite makes the scale
// NaN.
void store_head(const float* head, const CacheView& cache, void* data, float* scales,
                std::int64_t row, std::int64_t first, std::int64_t stride) {
    float scale = 1.0f;
    if (cache.type == Type::i8) {
        float most = 0.0f, poison = 0.0f;
        for (std::int64_t d = 0; d < cache.head_dim; ++d) {
            most = __builtin_fmaxf(most, __builtin_fabsf(head[d]));
            poison += head[d] * 0.0f;
        }
        scale = most / 127.0f;
        scales[row] = scale + poison;
    }
    for (std::int64_t d = 0; d < cache.head_dim; ++d) {
        float value = head[d];
        if (cache.type == Type::i8) {
            const float code = scale >= kLeastScale ? __builtin_rintf(value / scale) : 0.0f;
            value = code >= -127.0f && code <= 127.0f ? code : 0.0f;
        }
        write(data, cache.type, first + d * stride, value);
    }
}

void store_token(const RotateArgs& args, std::int64_t t, float* head) {
    const CacheView& cache = args.cache;
    const std::int64_t block = args.batch->slots[t] / cache.block_size;
    const std::int64_t offset = args.batch->slots[t] % cache.block_size;
    const std::int64_t head_dim = cache.head_dim;
    for (std::int64_t kv_head = 0; kv_head < cache.kv_heads; ++kv_head) {
        const std::int64_t row = (block * cache.kv_heads + kv_head) * cache.block_size + offset;
        load_head(args.k, t, kv_head * head_dim, head_dim, head);
        norm_head(args.k_norm, args.eps, args.k.type, head_dim, head);
        rotate_head(args.cos_sin + t * head_dim, args.k.type, head_dim, head);
        store_head(head, cache, cache.keys, cache.key_scales, row, cache.key_start(row),
                   cache.dimension_stride());
        load_head(args.v, t, kv_head * head_dim, head_dim, head);
        store_head(head, cache, cache.values, cache.value_scales, row, row * head_dim, 1);
    }
}

void rotate_queries(const RotateArgs& args, std::int64_t t, float* head) {
    const std::int64_t head_dim = args.cache.head_dim;
    for (std::int64_t h = 0; h < args.num_heads; ++h) {
        load_head(args.q, t, h * head_dim, head_dim, head);
        norm_head(args.q_norm, args.eps, args.q.type, head_dim, head);
        rotate_head(args.cos_sin + t * head_dim, args.q.type, head_dim, head);
        for (std::int64_t d = 0; d < head_dim; ++d) write(args.out, t, h * head_dim + d, head[d]);
    }
}

}  // namespace

void rotate_and_store(const RotateArgs& args, Team& team) {
    const auto bytes = static_cast<std::size_t>(args.cache.head_dim) * sizeof(float);
    team.run(args.q.count, 4, [&](std::int64_t begin, std::int64_t end, int thread) {
        float* head = static_cast<float*>(team.scratch(thread, bytes));
        for (std::int64_t t = begin; t < end; ++t) {
            rotate_queries(args, t, head);
            store_token(args, t, head);
        }
    });
}

}  // namespace inferno::INFERNO_ISA
