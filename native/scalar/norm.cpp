// RMSNorm of rows, after the residual was added where there is one.
#include "contract/isa_functions.h"
#include "elements.h"

namespace inferno::INFERNO_ISA {
namespace {

// Writes x + residual to `sum`. Returns the rows to normalize: the sums, or x where there are none.
Rows add_residual(const NormArgs& args, std::int64_t t) {
    if (!args.residual) return args.x;
    const std::int64_t width = args.x.width;
    const Rows sums = {args.sum, args.x.type, args.x.count, width, width};
    for (std::int64_t i = 0; i < width; ++i) {
        const float residual = read(args.residual, args.x.type, t * width + i);
        write(sums, t, i, read(args.x, t, i) + residual);
    }
    return sums;
}

void norm_row(const NormArgs& args, std::int64_t t) {
    const Rows x = add_residual(args, t);
    float squares = 0.0f;
    for (std::int64_t i = 0; i < x.width; ++i) squares += read(x, t, i) * read(x, t, i);
    const float scale =
        1.0f / __builtin_sqrtf(squares / static_cast<float>(x.width) + args.eps);
    for (std::int64_t i = 0; i < x.width; ++i) {
        const float normalized = rounded_to(x.type, read(x, t, i) * scale);
        write(args.out, t, i, weight_at(args.weight, i) * normalized);
    }
}

}  // namespace

void rms_norm(const NormArgs& args, Team& team) {
    team.run(args.x.count, 4, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t t = begin; t < end; ++t) norm_row(args, t);
    });
}

}  // namespace inferno::INFERNO_ISA
