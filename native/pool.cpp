// The pool's threads: how they wait, how they share out pieces.
#include "pool.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace inferno {
namespace {

// About 20 microseconds: longer than what lies between two kernels of a step, far shorter than what
// another program would notice.
constexpr int kSpins = 2000;

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

struct Scratch {
    void* memory = nullptr;
    std::size_t bytes = 0;
};

}  // namespace

struct Pool::State {
    // One kernel's work. Workers join while `ticket` is odd; `inside` counts them.
    alignas(64) std::atomic<std::uint64_t> ticket{0};
    alignas(64) std::atomic<std::int64_t> next{0};
    alignas(64) std::atomic<int> inside{0};
    std::int64_t count = 0;
    std::int64_t grain = 1;
    Body body = nullptr;
    void* context = nullptr;

    alignas(64) std::atomic<int> sleepers{0};
    std::atomic<bool> is_closing{false};
    std::mutex mutex;
    std::condition_variable wake;
    std::vector<std::thread> workers;
    std::vector<Scratch> scratch;

    void work(int thread) {
        for (;;) {
            const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= count) return;
            const std::int64_t end = begin + grain < count ? begin + grain : count;
            body(context, begin, end, thread);
        }
    }

    // Returns the first ticket after `seen`, or stops spinning and sleeps until there is one.
    std::uint64_t wait_for_ticket(std::uint64_t seen) {
        for (int spin = 0; spin < kSpins; ++spin) {
            const std::uint64_t now = ticket.load(std::memory_order_acquire);
            if (now != seen || is_closing.load(std::memory_order_relaxed)) return now;
            relax();
        }
        std::unique_lock<std::mutex> lock(mutex);
        sleepers.fetch_add(1);
        wake.wait(lock, [&] { return ticket.load() != seen || is_closing.load(); });
        sleepers.fetch_sub(1);
        return ticket.load(std::memory_order_acquire);
    }

    void serve(int thread) {
        std::uint64_t seen = 0;
        for (;;) {
            seen = wait_for_ticket(seen);
            if (is_closing.load(std::memory_order_relaxed)) return;
            // Enter only work that is still open: the caller closes it, then waits for `inside`.
            inside.fetch_add(1);
            if (ticket.load() == seen && seen % 2 == 1) work(thread);
            inside.fetch_sub(1);
        }
    }
};

Pool::Pool(int num_threads) : state_(new State), num_threads_(num_threads < 1 ? 1 : num_threads) {
    state_->scratch.resize(static_cast<std::size_t>(num_threads_) + 1);
    for (int thread = 1; thread < num_threads_; ++thread) {
        state_->workers.emplace_back([this, thread] { state_->serve(thread); });
    }
}

Pool::~Pool() {
    {
        std::lock_guard<std::mutex> lock(state_->mutex);
        state_->is_closing.store(true);
    }
    state_->wake.notify_all();
    for (std::thread& worker : state_->workers) worker.join();
    for (Scratch& scratch : state_->scratch) std::free(scratch.memory);
    delete state_;
}

void Pool::run_pieces(std::int64_t count, std::int64_t grain, Body body, void* context) {
    if (count <= 0) return;
    State& state = *state_;
    if (num_threads_ == 1 || count <= grain) {
        body(context, 0, count, 0);
        return;
    }
    state.count = count;
    state.grain = grain;
    state.body = body;
    state.context = context;
    state.next.store(0, std::memory_order_relaxed);
    state.ticket.fetch_add(1);  // odd: open
    if (state.sleepers.load() > 0) {
        { std::lock_guard<std::mutex> lock(state.mutex); }
        state.wake.notify_all();
    }
    state.work(0);
    state.ticket.fetch_add(1);  // even: closed
    while (state.inside.load() != 0) relax();
}

void* Pool::scratch(int thread, std::size_t bytes) {
    Scratch& scratch = state_->scratch[static_cast<std::size_t>(thread)];
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
