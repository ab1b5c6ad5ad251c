// The process's one pool of threads. A team (team.h) whose kernels need more threads than the
// caller's own borrows the pool's. They are lent to one team at a time, in the order of asking:
// from then until they are given back it is that team's turn.
#pragma once

#include <cstdint>

namespace inferno {

// The order to a thread: do parts [begin, end) of the work.
using Body = void (*)(void* context, std::int64_t begin, std::int64_t end, int thread);

// Two pools that spin on the same cores would ruin each other, so there is one. Its threads spin for
// some microseconds between kernels, then sleep; they are made when they are first asked for, and
// live as long as the process.
class Pool {
   public:
    Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;
    // Nobody could say when the last user is gone, and after a fork there is nobody to join.
    ~Pool() = delete;

    // Note that `borrower`, a team, is at work: a kernel call of it begins, or a captured step,
    // whether it will need more than its own thread or not. Returns whether others have been at
    // work lately: then a core is theirs, and lending all threads would have more of them run than
    // there are cores.
    bool is_shared_by(const void* borrower);

    // Wait until all who asked before have given the threads back; then `num_threads` of them, the
    // caller's own among them, are lent to the caller alone, until `take_back`. Throws
    // std::system_error where the system refuses a thread; then nothing is lent.
    void lend(int num_threads);
    void take_back();

    // For the borrower alone: call `body` for all of [0, count), cut into pieces of at most `grain`
    // parts, on at most as many threads as are lent, and wait. If a piece throws, no further ones
    // begin, and the first exception is thrown on, once all threads have left.
    void run(std::int64_t count, std::int64_t grain, Body body, void* context);

   private:
    struct State;
    State* state_;
};

// The pool of this process; a process that was forked has a new one.
Pool& the_pool();

}  // namespace inferno
