// Turns and scratch memory of a team.
#include "team.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace inferno {

Team::Team(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {
    scratch_.resize(static_cast<std::size_t>(num_threads_) + 1);
}

Team::~Team() {
    for (Scratch& scratch : scratch_) std::free(scratch.memory);
}

Team::Turn::Turn(Team& team) : team_(team) {
    if (team_.num_turns_++ > 0) return;
    const bool is_shared = the_pool().is_shared_by(&team_);
    team_.num_wanted_ = std::max(1, team_.num_threads_ - (is_shared ? 1 : 0));
}

Team::Turn::~Turn() {
    if (--team_.num_turns_ > 0 || !team_.pool_) return;
    team_.pool_->take_back();
    team_.pool_ = nullptr;
}

void Team::run_pieces(std::int64_t count, std::int64_t grain, Body body, void* context) {
    if (count <= 0) return;
    Turn turn(*this);
    if (num_wanted_ == 1 || count <= grain) {
        body(context, 0, count, 0);
        return;
    }
    if (!pool_) {
        Pool& pool = the_pool();
        pool.lend(num_wanted_);
        pool_ = &pool;
    }
    pool_->run(count, grain, body, context);
}

void* Team::scratch(int thread, std::size_t bytes) {
    Scratch& scratch = scratch_[static_cast<std::size_t>(thread)];
    if (scratch.bytes < bytes) {
        std::free(scratch.memory);
        const std::size_t rounded = (bytes + 4095) / 4096 * 4096;
        scratch.memory = std::aligned_alloc(64, rounded);
        scratch.bytes = scratch.memory ? rounded : 0;
        if (!scratch.memory) throw std::bad_alloc();
    }
    return scratch.memory;
}

}  // namespace inferno
