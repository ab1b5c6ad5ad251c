// The pool's threads: how they wait, how they share out pieces, and whose turn it is.
#include "pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace inferno {
namespace {

// About 20 microseconds: longer than what lies between two kernels of a step, far shorter than what
// another program would notice.
constexpr int kSpins = 2000;
// Who was at work so often while nobody else was is alone: more often than the few native calls of a
// step, between which another engine gets Python's lock.
constexpr int kAlone = 16;

inline void relax() {
#if defined(__x86_64__)
    _mm_pause();
#else
    std::this_thread::yield();
#endif
}

// Turns in the order of asking. Each waiter sleeps by itself, and is handed the turn.
class Queue {
   public:
    void enter() {
        std::unique_lock<std::mutex> lock(mutex_);
        if (!is_taken_) return static_cast<void>(is_taken_ = true);
        Waiter waiter;
        *last_ = &waiter;
        last_ = &waiter.next;
        waiter.wake.wait(lock, [&] { return waiter.has_turn; });
    }

    void leave() {
        std::lock_guard<std::mutex> lock(mutex_);
        Waiter* first = first_;
        if (!first) return static_cast<void>(is_taken_ = false);
        first_ = first->next;
        if (!first_) last_ = &first_;
        first->has_turn = true;
        first->wake.notify_one();  // under the lock: the waiter lies on a stack that may end
    }

   private:
    struct Waiter {
        Waiter* next = nullptr;
        bool has_turn = false;
        std::condition_variable wake;
    };
    std::mutex mutex_;
    bool is_taken_ = false;
    Waiter* first_ = nullptr;
    Waiter** last_ = &first_;
};

struct Worker {
    int thread;  // from 1 on: the borrower is thread 0
    alignas(64) std::atomic<bool> is_asleep{false};
    std::mutex mutex;
    std::condition_variable wake;
};

}  // namespace

// Who may touch what: while `ticket` is even and `inside` is 0 the job is the borrower's, who is one
// at a time. Else it is read by all who entered: a worker counts itself into `inside` and then looks
// at `ticket` again, the borrower makes `ticket` even and then looks at `inside`. In whatever order
// these four happen, either the worker finds the job closed or the borrower waits for it.
struct Pool::State {
    alignas(64) std::atomic<std::uint64_t> ticket{0};  // odd: a job is open
    std::atomic<int> num_threads{1};                   // of the job; changes only while it is closed
    alignas(64) std::atomic<std::int64_t> next{0};
    alignas(64) std::atomic<int> inside{0};

    std::int64_t count = 0;
    std::int64_t grain = 1;
    Body body = nullptr;
    void* context = nullptr;
    std::atomic<bool> has_failed{false};
    std::exception_ptr problem;  // the first one's, who found has_failed unset

    alignas(64) std::atomic<const void*> last_borrower{nullptr};
    std::atomic<int> times_alone{kAlone};  // that it was at work while nobody else was

    alignas(64) Queue queue;
    int num_lent = 1;
    std::vector<Worker*> workers;

    void add_worker() {
        auto worker = std::make_unique<Worker>();
        worker->thread = static_cast<int>(workers.size()) + 1;
        workers.reserve(workers.size() + 1);
        std::thread([this, worker = worker.get()] { serve(*worker); }).detach();
        workers.push_back(worker.release());
    }

    void work(int thread) {
        try {
            for (;;) {
                const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
                if (begin >= count) return;
                const std::int64_t end = count - begin > grain ? begin + grain : count;
                body(context, begin, end, thread);
            }
        } catch (...) {
            next.store(count, std::memory_order_relaxed);
            if (!has_failed.exchange(true)) problem = std::current_exception();
        }
    }

    // Whether there is a newer ticket than `seen`, which concerns that worker.
    bool is_called(const Worker& worker, std::uint64_t seen) const {
        return ticket.load() != seen &&
               worker.thread < num_threads.load(std::memory_order_relaxed);
    }

    // Returns when the worker is called. It stops spinning and sleeps if that takes long.
    void wait(Worker& worker, std::uint64_t seen) {
        for (int spin = 0; spin < kSpins; ++spin) {
            if (is_called(worker, seen)) return;
            relax();
        }
        std::unique_lock<std::mutex> lock(worker.mutex);
        worker.is_asleep.store(true);
        worker.wake.wait(lock, [&] { return is_called(worker, seen); });
        worker.is_asleep.store(false);
    }

    void serve(Worker& worker) {
        // The runtime's memory for a thread's exceptions comes when it is first asked for, and the
        // system ends a process that has none left then.
        (void)std::uncaught_exceptions();
        std::uint64_t seen = 0;
        for (;;) {
            wait(worker, seen);
            seen = ticket.load();
            if (seen % 2 == 0) continue;
            inside.fetch_add(1);
            if (ticket.load() == seen && worker.thread < num_threads.load()) work(worker.thread);
            inside.fetch_sub(1);
        }
    }

    // The lock is for those who are about to sleep: they have seen the ticket, or hear the call.
    void wake_workers() {
        for (int thread = 1; thread < num_lent; ++thread) {
            Worker& worker = *workers[static_cast<std::size_t>(thread) - 1];
            if (!worker.is_asleep.load()) continue;
            { std::lock_guard<std::mutex> lock(worker.mutex); }
            worker.wake.notify_one();
        }
    }

    // A worker may have been put off its core in the middle of a piece: then it gets the caller's.
    void wait_for_workers() {
        for (int spin = 0; inside.load() != 0; ++spin) {
            if (spin < kSpins) {
                relax();
            } else {
                std::this_thread::yield();
            }
        }
    }
};

Pool::Pool() : state_(new State) {}

bool Pool::is_shared_by(const void* borrower) {
    State& state = *state_;
    constexpr auto relaxed = std::memory_order_relaxed;  // a wrong guess costs a little time
    if (state.last_borrower.load(relaxed) != borrower) {
        const bool is_first = !state.last_borrower.exchange(borrower, relaxed);
        state.times_alone.store(is_first ? kAlone : 0, relaxed);
    } else if (const int times = state.times_alone.load(relaxed); times < kAlone) {
        state.times_alone.store(times + 1, relaxed);
    }
    return state.times_alone.load(relaxed) < kAlone;
}

void Pool::lend(int num_threads) {
    State& state = *state_;
    state.queue.enter();
    state.num_lent = num_threads;
    try {
        while (static_cast<int>(state.workers.size()) < num_threads - 1) state.add_worker();
    } catch (const std::system_error& refusal) {
        state.queue.leave();
        throw std::system_error(refusal.code(), "can't start a thread");
    } catch (...) {
        state.queue.leave();
        throw;
    }
}

void Pool::take_back() { state_->queue.leave(); }

void Pool::run(std::int64_t count, std::int64_t grain, Body body, void* context) {
    State& state = *state_;
    state.count = count;
    state.grain = grain;
    state.body = body;
    state.context = context;
    state.has_failed.store(false, std::memory_order_relaxed);
    state.num_threads.store(state.num_lent, std::memory_order_relaxed);
    state.next.store(0, std::memory_order_relaxed);
    state.ticket.fetch_add(1);  // odd: open
    state.wake_workers();
    state.work(0);
    state.ticket.fetch_add(1);  // even: closed
    state.wait_for_workers();
    if (state.has_failed.load(std::memory_order_relaxed)) {
        std::rethrow_exception(std::exchange(state.problem, nullptr));
    }
}

namespace {

std::atomic<Pool*> pool{new Pool};

#if defined(__unix__) || defined(__APPLE__)
// The threads stayed with the parent, and locks with whoever held them. What is left of the old pool
// is never touched again.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { pool.store(new Pool); });
#endif

}  // namespace

Pool& the_pool() { return *pool.load(); }

}  // namespace inferno
