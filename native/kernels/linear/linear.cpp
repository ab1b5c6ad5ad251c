// Linear layers over packed weights, shared out over the threads.
#include "contract/isa_functions.h"
#include "product.h"

namespace inferno::INFERNO_ISA {
namespace {

// Up to so many values are packed by the caller: waking the others would take longer. (Some
// microseconds: 7 ns for a scale group of 32.)
constexpr std::int64_t kFewValues = 8192;

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
            round_up((panels - first) / (2 * num_threads) + 1, kMostPanels);
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
    const std::int64_t wanted = divide_up(num_threads, divide_up(panels, kMostPanels));
    const std::int64_t blocks = product.x.num_blocks;
    return {panels, num_threads, wanted < blocks ? wanted : blocks};
}

void pack_all(const Rows& x, const Weight& weight, const PackedActivations& packed, Team& team) {
    const bool is_small = x.count * weight.inputs <= kFewValues;
    const std::int64_t grain = is_small ? packed.num_blocks : 1;
    team.run(packed.num_blocks, grain, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t b = begin; b < end; ++b) pack_activations(x, nullptr, weight, packed, b);
    });
}

void multiply_piece(const Product& product, const Pieces& pieces, std::int64_t nth, Team& team,
                    int thread) {
    const std::int64_t parts = pieces.row_parts, part = nth % parts;
    const std::int64_t blocks = product.x.num_blocks;
    multiply(product, {blocks * part / parts, blocks * (part + 1) / parts},
             pieces.nth(nth / parts), team, thread);
}

void multiply_all(const Product& product, Team& team) {
    const Pieces pieces = pieces_of(product, team.num_threads());
    const std::int64_t count = pieces.count() * pieces.row_parts;
    team.run(count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t i = begin; i < end; ++i) {
            multiply_piece(product, pieces, i, team, thread);
        }
    });
}

// The pieces of all ranges are one list, range by range.
void multiply_ranges(const Product* products, std::int64_t num_ranges, Team& team) {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < num_ranges; ++r) {
        const Pieces pieces = pieces_of(products[r], team.num_threads());
        count += pieces.count() * pieces.row_parts;
    }
    team.run(count, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
        for (std::int64_t i = begin; i < end; ++i) {
            std::int64_t nth = i;
            for (const Product* product = products;; ++product) {
                const Pieces pieces = pieces_of(*product, team.num_threads());
                const std::int64_t its_count = pieces.count() * pieces.row_parts;
                if (nth < its_count) {
                    multiply_piece(*product, pieces, nth, team, thread);
                    break;
                }
                nth -= its_count;
            }
        }
    });
}

// Outputs [first, first + weight.outputs) of all.
Product product_of(const LinearArgs& args, const PackedActivations& packed, const Weight& weight,
                   std::int64_t first, Rows out) {
    Optional bias = args.bias;
    if (bias.data) bias.data = static_cast<const char*>(bias.data) + first * size_of(bias.type);
    out.data = static_cast<char*>(out.data) + first * size_of(out.type);
    out.width = weight.outputs;
    return {packed, weight, bias, out};
}

// The range before `nth` that has the same packing, so that it needs the same activations; or nth.
std::int64_t like_range(const Weight* ranges, std::int64_t nth) {
    for (std::int64_t r = 0; r < nth; ++r) {
        if (ranges[r].packing == ranges[nth].packing) return r;
    }
    return nth;
}

void multiply_rows(const LinearArgs& args, const Rows& x, const Rows& out, Team& team) {
    PackedActivations packed = activations_for(args.weight, x.count, args.beside_codes);
    packed.words = static_cast<std::uint32_t*>(
        team.scratch(team.num_threads(), static_cast<std::size_t>(packed.bytes())));
    pack_all(x, args.weight, packed, team);
    const Activation* gate = args.is_gated ? &args.activation : nullptr;
    multiply_all({packed, args.weight, args.bias, out, gate}, team);
}

void multiply_rows_by_ranges(const LinearArgs& args, const Rows& x, const Rows& out, Team& team) {
    const std::int64_t products_bytes =
        round_up(args.num_ranges * static_cast<std::int64_t>(sizeof(Product)), 64);
    std::int64_t bytes = products_bytes;
    for (std::int64_t r = 0; r < args.num_ranges; ++r) {
        if (like_range(args.ranges, r) < r) continue;
        bytes += round_up(activations_for(args.ranges[r], x.count, args.beside_codes).bytes(), 64);
    }
    char* memory =
        static_cast<char*>(team.scratch(team.num_threads(), static_cast<std::size_t>(bytes)));
    Product* products = reinterpret_cast<Product*>(memory);
    char* words = memory + products_bytes;
    std::int64_t first = 0;
    for (std::int64_t r = 0; r < args.num_ranges; ++r) {
        const Weight& weight = args.ranges[r];
        PackedActivations packed = activations_for(weight, x.count, args.beside_codes);
        if (const std::int64_t like = like_range(args.ranges, r); like < r) {
            packed.words = products[like].x.words;
        } else {
            packed.words = reinterpret_cast<std::uint32_t*>(words);
            words += round_up(packed.bytes(), 64);
            pack_all(x, weight, packed, team);
        }
        products[r] = product_of(args, packed, weight, first, out);
        first += weight.outputs;
    }
    multiply_ranges(products, args.num_ranges, team);
}

}  // namespace

void linear(const LinearArgs& args, Team& team) {
    const std::int64_t count = args.x.count;
    const std::int64_t parts = divide_up(count, kMostRows);
    for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = count * part / parts;
        const std::int64_t end = count * (part + 1) / parts;
        const Rows x = rows_from(args.x, begin, end), out = rows_from(args.out, begin, end);
        if (args.ranges) {
            multiply_rows_by_ranges(args, x, out, team);
        } else {
            multiply_rows(args, x, out, team);
        }
    }
}

}  // namespace inferno::INFERNO_ISA
