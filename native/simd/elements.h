// The types of elements in memory: how sixteen of a type become lanes of float32, and back.
#pragma once

#include "contract/kernels.h"
#include "bf16.h"
#include "lanes.h"

namespace inferno {
namespace {

using Index = std::int64_t;

constexpr Index min(Index a, Index b) { return a < b ? a : b; }
constexpr Index max(Index a, Index b) { return a > b ? a : b; }

struct F32 {
    using Raw = float;
    static F load(const Raw* p) { return inferno::load(p); }
    static F load_first(const Raw* p, int n) { return inferno::load_first(p, n); }
    static void store(Raw* p, F a) { inferno::store(p, a); }
    static void store_first(Raw* p, F a, int n) { inferno::store_first(p, a, n); }
    static F rounded(F a) { return a; }  // to what this type can hold
};

struct BF16 {
    using Raw = std::uint16_t;
    static F load(const Raw* p) { return load_bf16(p); }
    static F load_first(const Raw* p, int n) { return load_bf16_first(p, n); }
    static void store(Raw* p, F a) { store_activation(p, a); }
    static void store_first(Raw* p, F a, int n) { store_activation_first(p, a, n); }
    static F rounded(F a) { return round_activation(a); }
};

struct F16 {
    using Raw = std::uint16_t;
    static F load(const Raw* p) { return load_f16(p); }
    static F load_first(const Raw* p, int n) {
        Raw whole[16] = {};
        for (int i = 0; i < n; ++i) whole[i] = p[i];
        return load_f16(whole);
    }
    static void store(Raw* p, F a) { store_f16(p, a); }
    static void store_first(Raw* p, F a, int n) {
        Raw whole[16];
        store_f16(whole, a);
        for (int i = 0; i < n; ++i) p[i] = whole[i];
    }
};

struct I8 {
    using Raw = std::int8_t;
    static F load(const Raw* p) { return load_i8(p); }
    static F load_first(const Raw* p, int n) {
        Raw whole[16] = {};
        for (int i = 0; i < n; ++i) whole[i] = p[i];
        return load_i8(whole);
    }
    static void store(Raw* p, F a) { store_i8(p, to_int(a)); }
};

template <class E>
constexpr Index size_in() {
    return static_cast<Index>(sizeof(typename E::Raw));
}

// Elements [i, i + 16) of a row, as far as they lie before `width`. Whole registers have a path of
// their own, because masked stores are slow.
template <class E>
inline F load_part(const typename E::Raw* row, Index i, Index width) {
    if (i + 16 <= width) return E::load(row + i);
    return E::load_first(row + i, static_cast<int>(width - i));
}

template <class E>
inline void store_part(typename E::Raw* row, Index i, Index width, F a) {
    if (i + 16 <= width) return E::store(row + i, a);
    E::store_first(row + i, a, static_cast<int>(width - i));
}

// Call `f` with the struct of an activation's type.
template <class Function>
inline void with_activation_type(Type type, Function&& f) {
    if (type == Type::f32) {
        f(F32{});
    } else {
        f(BF16{});
    }
}

// Call `f` with the struct of a cache's type.
template <class Function>
inline void with_cache_type(Type type, Function&& f) {
    switch (type) {
        case Type::f32: f(F32{}); break;
        case Type::bf16: f(BF16{}); break;
        case Type::f16: f(F16{}); break;
        default: f(I8{});
    }
}

// A part of a vector of f32 or bf16, as load_part.
inline F load_weights(const Optional& weights, Index i, Index width) {
    if (weights.type == Type::f32) {
        return load_part<F32>(static_cast<const float*>(weights.data), i, width);
    }
    return load_part<BF16>(static_cast<const std::uint16_t*>(weights.data), i, width);
}

}  // namespace
}  // namespace inferno
