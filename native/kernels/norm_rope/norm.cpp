// RMSNorm of rows, after the residual was added where there is one.
#include "contract/isa_functions.h"
#include "norm_lanes.h"

namespace inferno::INFERNO_ISA {
namespace {

constexpr Index kGrainElements = 16384;  // a few microseconds

// sum = x + residual, in the row's type. Returns the sums' squares, lane by lane.
template <class E>
F add_residual(const typename E::Raw* x, const typename E::Raw* residual, Index width,
               typename E::Raw* sum) {
    F squares = zero();
    for (Index i = 0; i < width; i += 16) {
        const F both = add(load_part<E>(x, i, width), load_part<E>(residual, i, width));
        const F a = E::rounded(both);
        store_part<E>(sum, i, width, a);
        squares = fma(a, a, squares);
    }
    return squares;
}

template <class E>
F squares_of(const typename E::Raw* x, Index width) {
    F squares = zero();
    for (Index i = 0; i < width; i += 16) {
        const F a = load_part<E>(x, i, width);
        squares = fma(a, a, squares);
    }
    return squares;
}

template <class E, class O>
void norm_row(const NormArgs& args, Index t) {
    using Raw = typename E::Raw;
    const Index width = args.x.width;
    const Raw* x = static_cast<const Raw*>(args.x.data) + t * args.x.stride;
    F squares;
    if (args.residual) {
        Raw* sums = static_cast<Raw*>(args.sum) + t * width;
        const Raw* residual = static_cast<const Raw*>(args.residual) + t * width;
        squares = add_residual<E>(x, residual, width, sums);
        x = sums;
    } else {
        squares = squares_of<E>(x, width);
    }
    const float scale = rms_scale(squares, width, args.eps);
    auto* out = static_cast<typename O::Raw*>(args.out.data) + t * args.out.stride;
    for (Index i = 0; i < width; i += 16) {
        const F a = load_part<E>(x, i, width);
        store_part<O>(out, i, width, weighted<E>(a, scale, args.weight, i, width));
    }
}

}  // namespace

void rms_norm(const NormArgs& args, Team& team) {
    with_activation_type(args.x.type, [&](auto e) {
        with_activation_type(args.out.type, [&](auto o) {
            const Index grain = 1 + kGrainElements / (args.x.width + 1);
            team.run(args.x.count, grain, [&](Index begin, Index end, int) {
                for (Index t = begin; t < end; ++t) norm_row<decltype(e), decltype(o)>(args, t);
            });
        });
    });
}

}  // namespace inferno::INFERNO_ISA
