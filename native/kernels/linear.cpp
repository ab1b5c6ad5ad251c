// Linear layers over packed weights, shared out over the threads.
#include "families.h"
#include "product.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// Up to so many values are arranged by the caller: waking the others would take longer.
constexpr std::int64_t kFewValues = 8192;

// Panels that the widest tile takes together.
constexpr std::int64_t kLeastPanels = 4;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How a product is cut. Long pieces come first, because memory is read best in one go, and short
// ones last, so that nobody waits long: each takes a thread's share of half of what is left.
struct Pieces {
    std::int64_t panels;
    std::int64_t num_threads;
    std::int64_t row_parts;  // more than one where there are too few panels

    // Panels of a piece that begins with panel `first`.
    Range from(std::int64_t first) const {
        const std::int64_t width =
            round_up((panels - first) / (2 * num_threads) + 1, kLeastPanels);
        return {first, first + width < panels ? first + width : panels};
    }

    std::int64_t count() const {
        std::int64_t count = 0;
        for (Range piece = {0, 0}; piece.end < panels; ++count) piece = from(piece.end);
        return count;
    }

    Range nth(std::int64_t n) const {
        Range piece = from(0);
        for (; n > 0; --n) piece = from(piece.end);
        return piece;
    }
};

Pieces pieces_of(const Product& product, std::int64_t num_threads) {
    const std::int64_t panels = num_panels(product.weight) / (product.gate ? 2 : 1);
    const std::int64_t wanted = divide_up(num_threads, divide_up(panels, kLeastPanels));
    const std::int64_t blocks = product.x.num_blocks;
    return {panels, num_threads, wanted < blocks ? wanted : blocks};
}

void arrange_all(const LinearArgs& args, const Rows& x, const Inputs& inputs, Team& team) {
    const bool is_small = x.count * args.weight.inputs <= kFewValues;
    const std::int64_t grain = is_small ? inputs.num_blocks : 1;
    team.run(inputs.num_blocks, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t b = begin; b < end; ++b) arrange(x, nullptr, args.weight, inputs, b);
    });
}

void multiply_all(const Product& product, Team& team) {
    const Pieces pieces = pieces_of(product, team.num_threads());
    const std::int64_t parts = pieces.row_parts;
    const std::int64_t blocks = product.x.num_blocks;
    team.run(pieces.count() * parts, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
            const std::int64_t part = i % parts;
            multiply(product, {blocks * part / parts, blocks * (part + 1) / parts},
                     pieces.nth(i / parts));
        }
    });
}

}  // namespace

void linear(const LinearArgs& args, Team& team) {
    const std::int64_t count = args.x.count;
    const std::int64_t parts = divide_up(count, kMostRows);
    for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = count * part / parts;
        const std::int64_t end = count * (part + 1) / parts;
        Inputs inputs = inputs_for(args.weight, end - begin);
        inputs.words = static_cast<std::uint32_t*>(
            team.scratch(team.num_threads(), static_cast<std::size_t>(inputs.bytes())));
        arrange_all(args, rows_from(args.x, begin, end), inputs, team);
        const Activation* gate = args.is_gated ? &args.activation : nullptr;
        multiply_all({inputs, args.weight, args.bias, rows_from(args.out, begin, end), gate}, team);
    }
}

}  // namespace inferno::INFERNO_LEVEL
