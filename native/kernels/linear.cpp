// Linear layers over packed weights, shared out over the threads.
#include "families.h"
#include "product.h"

namespace inferno::INFERNO_LEVEL {
namespace {

// Up to so many values are arranged by the caller: waking the others would take longer.
constexpr std::int64_t kFewValues = 8192;

// Pieces for each thread, so that one that comes late leaves the others little to wait for.
constexpr std::int64_t kPieces = 8;

struct Grid {
    std::int64_t panels;  // of a piece
    std::int64_t columns;  // pieces side by side
    std::int64_t rows;  // and below each other
};

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Rows are divided only where there are too few of those.
Grid grid_for(const Product& product, std::int64_t num_threads) {
    const std::int64_t panels = num_panels(product.weight);
    const std::int64_t width = panels_of_piece(panels, num_threads * kPieces);
    const std::int64_t columns = divide_up(panels, width);
    const std::int64_t rows = divide_up(num_threads, columns);
    const std::int64_t num_blocks = product.x.num_blocks;
    return {width, columns, rows < num_blocks ? rows : num_blocks};
}

void arrange_all(const LinearArgs& args, const Rows& x, const Inputs& inputs, Pool& pool) {
    const bool is_small = x.count * args.weight.inputs <= kFewValues;
    const std::int64_t grain = is_small ? inputs.num_blocks : 1;
    pool.run(inputs.num_blocks, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
        auto* row = static_cast<std::uint32_t*>(
            pool.scratch(thread, static_cast<std::size_t>(inputs.row_words * 4)));
        for (std::int64_t b = begin; b < end; ++b) {
            arrange(x, nullptr, args.weight, inputs, b, row);
        }
    });
}

void multiply_all(const Product& product, Pool& pool) {
    const Grid grid = grid_for(product, pool.num_threads());
    const std::int64_t panels = num_panels(product.weight);
    const std::int64_t blocks = product.x.num_blocks;
    pool.run(grid.columns * grid.rows, 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t piece = begin; piece < end; ++piece) {
            const std::int64_t row = piece % grid.rows;
            const std::int64_t first = piece / grid.rows * grid.panels;
            const std::int64_t last = first + grid.panels;
            multiply(product, {blocks * row / grid.rows, blocks * (row + 1) / grid.rows},
                     {first, last < panels ? last : panels});
        }
    });
}

}  // namespace

void linear(const LinearArgs& args, Pool& pool) {
    const std::int64_t count = args.x.count;
    const std::int64_t parts = divide_up(count, kMostRows);
    for (std::int64_t part = 0; part < parts; ++part) {
        const std::int64_t begin = count * part / parts;
        const std::int64_t end = count * (part + 1) / parts;
        Inputs inputs = inputs_for(args.weight, end - begin);
        inputs.words = static_cast<std::uint32_t*>(
            pool.scratch(pool.num_threads(), static_cast<std::size_t>(inputs.bytes())));
        arrange_all(args, rows_from(args.x, begin, end), inputs, pool);
        multiply_all({inputs, args.weight, args.bias, rows_from(args.out, begin, end)}, pool);
    }
}

}  // namespace inferno::INFERNO_LEVEL
