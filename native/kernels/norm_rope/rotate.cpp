// Queries and keys normalized where asked and rotated; keys and values written to the cache.
#include "contract/isa_functions.h"
#include "norm_lanes.h"

namespace inferno::INFERNO_ISA {
namespace {

// At most so many tokens are done together, head by head: keys lie transposed, so that tokens which
// follow one another share cache lines.
constexpr Index kTokens = 16;

// One head of one token: from memory to float32, normalized if there is a weight.
template <class E>
void load_head(const typename E::Raw* x, Index head_dim, const Optional& weight, float eps,
               float* head) {
    F squares = zero();
    for (Index i = 0; i < head_dim; i += 16) {
        const F a = load_part<E>(x, i, head_dim);
        store(head + i, a);
        squares = fma(a, a, squares);
    }
    if (!weight.data) return;
    const float scale = rms_scale(squares, head_dim, eps);
    for (Index i = 0; i < head_dim; i += 16) {
        store(head + i, E::rounded(weighted<E>(load(head + i), scale, weight, i, head_dim)));
    }
}

// From the activations' type E to a cache's or a result's. What has been rounded to E would not be
// changed by rounding to it again.
template <class E, class O>
struct Rounded {
    static F to(F a) { return E::rounded(a); }
};
template <>
struct Rounded<BF16, BF16> {
    static F to(F a) { return a; }
};

// Pair i is (i, i + half). Products and differences round one by one, as plain float32 code does.
template <class E, class O>
void rotate_head(const float* head, Index half, const float* cosines, typename O::Raw* out) {
    const float* sines = cosines + half;
    for (Index i = 0; i < half; i += 16) {
        const F c = load_part<F32>(cosines, i, half), s = load_part<F32>(sines, i, half);
        const F low = load(head + i), high = load(head + half + i);
        const F turned = sub(mul(low, c), mul(high, s)), other = add(mul(high, c), mul(low, s));
        store_part<O>(out, i, half, Rounded<E, O>::to(turned));
        store_part<O>(out + half, i, half, Rounded<E, O>::to(other));
    }
}

// A head as the cache's type C, in `raw`, which has room for whole registers of sixteen.
template <class C>
float encode(const float* head, Index head_dim, typename C::Raw* raw) {
    for (Index i = 0; i < head_dim; i += 16) C::store(raw + i, load(head + i));
    return 1.0f;
}

// In int8 the largest magnitude becomes 127; a head of next to nothing becomes zeros. One that
// holds infinity or NaN gets NaN for its scale, so that it can't pass for numbers.
template <>
float encode<I8>(const float* head, Index head_dim, std::int8_t* raw) {
    F most = zero(), poison = zero();
    for (Index i = 0; i < head_dim; i += 16) {
        const F a = load_part<F32>(head, i, head_dim);
        most = max(most, max(a, sub(zero(), a)));
        poison = fma(a, zero(), poison);
    }
    const float scale = largest(most) / 127.0f;
    for (Index i = 0; i < head_dim; i += 16) {
        const F a = load_part<F32>(head, i, head_dim);
        I8::store(raw + i, scale >= kLeastScale ? div(a, splat(scale)) : zero());
    }
    return scale + sum(poison);
}

// Tokens whose slots follow one another within a block, up to kTokens of them.
Index run_of_slots(const RotateArgs& args, Index t, Index end) {
    const Index* slots = args.batch->slots;
    Index n = 1;
    while (t + n < end && n < kTokens && slots[t + n] == slots[t] + n &&
           slots[t + n] % args.cache.block_size != 0) {
        ++n;
    }
    return n;
}

// Memory of one thread.
struct Workspace {
    float* head;     // one, with room for reading a register beyond it
    float* rotated;  // one
    void* raw;       // kTokens heads as the cache holds them, `padded` elements each
};

// Rows count positions of all blocks' heads.
Index row_at(const RotateArgs& args, Index t, Index kv_head) {
    const CacheView& cache = args.cache;
    const Index block = args.batch->slots[t] / cache.block_size * cache.kv_heads + kv_head;
    return block * cache.block_size + args.batch->slots[t] % cache.block_size;
}

// One key of one token, normalized, rotated, and as type O.
template <class E, class O>
void rotate_key(const RotateArgs& args, Index t, Index kv_head, float* head,
                typename O::Raw* out) {
    const Index head_dim = args.cache.head_dim;
    const auto* k = static_cast<const typename E::Raw*>(args.k.data) + t * args.k.stride;
    load_head<E>(k + kv_head * head_dim, head_dim, args.k_norm, args.eps, head);
    rotate_head<E, O>(head, head_dim / 2, args.cos_sin + t * head_dim, out);
}

// Keys of a cache of type C, in which they lie transposed.
template <class E, class C>
struct Keys {
    static void store(const RotateArgs& args, Index t, Index n, Index kv_head,
                      const Workspace& w) {
        using Raw = typename C::Raw;
        const CacheView& cache = args.cache;
        const Index head_dim = cache.head_dim, padded = round_up(head_dim, 16);
        const Index row = row_at(args, t, kv_head);
        Raw* raw = static_cast<Raw*>(w.raw);
        for (Index i = 0; i < n; ++i) {
            rotate_key<E, F32>(args, t + i, kv_head, w.head, w.rotated);
            const float scale = encode<C>(w.rotated, head_dim, raw + i * padded);
            if (cache.type == Type::i8) cache.key_scales[row + i] = scale;
        }
        Raw* keys = static_cast<Raw*>(cache.keys) + cache.key_start(row);
        for (Index d = 0; d < head_dim; ++d) {
            for (Index i = 0; i < n; ++i) keys[d * cache.block_size + i] = raw[i * padded + d];
        }
    }
};

// Copy a head to its place in the cache. That of a lone token lies far from all others, and is
// streamed past the caches: else its lines would be fetched one after another, to be filled.
inline void place(void* to, const void* head, Index bytes, bool is_lone) {
    if (is_lone && bytes % 64 == 0 && reinterpret_cast<std::uintptr_t>(to) % 64 == 0) {
        const auto* from = static_cast<const float*>(head);
        for (Index i = 0; i < bytes / 4; i += 16) {
            store_streaming(static_cast<float*>(to) + i, load(from + i));
        }
    } else {
        __builtin_memcpy(to, head, static_cast<std::size_t>(bytes));
    }
}

// Keys of bfloat16 are whole.
template <class E>
struct Keys<E, BF16> {
    static void store(const RotateArgs& args, Index t, Index n, Index kv_head,
                      const Workspace& w) {
        const CacheView& cache = args.cache;
        const Index head_dim = cache.head_dim;
        auto* keys = static_cast<std::uint16_t*>(cache.keys) +
                     cache.key_start(row_at(args, t, kv_head));
        auto* raw = static_cast<std::uint16_t*>(w.raw);
        for (Index i = 0; i < n; ++i) {
            rotate_key<E, BF16>(args, t + i, kv_head, w.head, raw);
            place(keys + i * head_dim, raw, head_dim * size_in<BF16>(), n == 1);
        }
    }
};

template <class E, class C>
void store_values(const RotateArgs& args, Index t, Index n, Index kv_head, const Workspace& w) {
    using Raw = typename C::Raw;
    const CacheView& cache = args.cache;
    const Index head_dim = cache.head_dim, row = row_at(args, t, kv_head);
    for (Index i = 0; i < n; ++i) {
        const auto* v = static_cast<const typename E::Raw*>(args.v.data) + (t + i) * args.v.stride;
        load_head<E>(v + kv_head * head_dim, head_dim, {nullptr, Type::f32}, 0.0f, w.head);
        const float scale = encode<C>(w.head, head_dim, static_cast<Raw*>(w.raw));
        if (cache.type == Type::i8) cache.value_scales[row + i] = scale;
        place(static_cast<Raw*>(cache.values) + (row + i) * head_dim, w.raw,
              head_dim * size_in<C>(), n == 1);
    }
}

template <class E, class O>
void rotate_queries(const RotateArgs& args, Index t, float* head) {
    const Index head_dim = args.cache.head_dim;
    const auto* q = static_cast<const typename E::Raw*>(args.q.data) + t * args.q.stride;
    auto* out = static_cast<typename O::Raw*>(args.out.data) + t * args.out.stride;
    const float* cosines = args.cos_sin + t * head_dim;
    for (Index h = 0; h < args.num_heads; ++h) {
        load_head<E>(q + h * head_dim, head_dim, args.q_norm, args.eps, head);
        rotate_head<E, O>(head, head_dim / 2, cosines, out + h * head_dim);
    }
}

template <class E, class C>
void rotate_tokens(const RotateArgs& args, Index begin, Index end, const Workspace& w) {
    with_activation_type(args.out.type, [&](auto o) {
        for (Index t = begin; t < end; ++t) rotate_queries<E, decltype(o)>(args, t, w.head);
    });
    for (Index t = begin, n; t < end; t += n) {
        n = run_of_slots(args, t, end);
        for (Index kv_head = 0; kv_head < args.cache.kv_heads; ++kv_head) {
            Keys<E, C>::store(args, t, n, kv_head, w);
            store_values<E, C>(args, t, n, kv_head, w);
        }
    }
}

}  // namespace

void rotate_and_store(const RotateArgs& args, Team& team) {
    const Index padded = round_up(args.cache.head_dim, 16);
    const auto bytes = static_cast<std::size_t>((2 * padded + 16 + kTokens * padded) * 4);
    const Index share = (args.q.count + team.num_threads() - 1) / team.num_threads();
    const Index grain = min(kTokens, max(1, share));
    with_activation_type(args.q.type, [&](auto e) {
        with_cache_type(args.cache.type, [&](auto c) {
            team.run(args.q.count, grain, [&](Index begin, Index end, int thread) {
                float* memory = static_cast<float*>(team.scratch(thread, bytes));
                float* rotated = memory + padded + 16;
                const Workspace w = {memory, rotated, rotated + padded};
                rotate_tokens<decltype(e), decltype(c)>(args, begin, end, w);
                _mm_sfence();  // streaming stores are ordered by nothing else
            });
        });
    });
}

}  // namespace inferno::INFERNO_ISA
