// Weights compared with their digests: all of them at once, or while they serve.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "slipway/detail/error.h"
#include "slipway/detail/files.h"

namespace slipway::detail {

/// Compare a whole file with its digests, by all cores. Throws Error.
inline void require_all_chunks(const CheckedFile& file) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr problem;
    const auto work = [&] {
        std::vector<uint8_t> scratch;
        try {
            for (size_t chunk; (chunk = next.fetch_add(1)) < file.chunks();)
                file.require_chunk(chunk, scratch);
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            problem = std::current_exception();
            next.store(file.chunks());
        }
    };
    std::vector<std::thread> threads;
    const size_t most = std::max(1U, std::thread::hardware_concurrency());
    for (size_t i = 1; i < std::min(most, file.chunks()); ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    if (problem) std::rethrow_exception(problem);
}

/// Compares weights with their digests while the packages serve.
class LazyCheck {
 public:
    explicit LazyCheck(std::vector<const CheckedFile*> files) : files_(std::move(files)) {
        if (!files_.empty()) thread_ = std::thread([this] { run(); });
    }
    ~LazyCheck() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            ended_ = true;
        }
        wake_.notify_all();
        if (thread_.joinable()) thread_.join();
    }
    LazyCheck(const LazyCheck&) = delete;
    LazyCheck& operator=(const LazyCheck&) = delete;

    /// Throw Error if damage has been found.
    void require_undamaged() const {
        if (!is_damaged_.load(std::memory_order_acquire)) return;
        const std::lock_guard<std::mutex> lock(mutex_);
        throw Error("artifact_damaged", problem_);
    }

 private:
    static constexpr auto pause = std::chrono::milliseconds(1000);

    void run() {
        setpriority(PRIO_PROCESS, 0, 19);  // on Linux: of this thread
        std::vector<std::vector<bool>> done;
        size_t left = 0;
        for (const CheckedFile* file : files_) {
            done.emplace_back(file->chunks(), false);
            left += file->chunks();
        }
        std::vector<uint8_t> scratch;
        try {
            while (left > 0) {
                for (size_t i = 0; i < files_.size(); ++i)
                    for (const size_t chunk : files_[i]->resident_chunks()) {
                        if (done[i][chunk]) continue;
                        if (is_ended(std::chrono::milliseconds(0))) return;
                        files_[i]->require_chunk(chunk, scratch);
                        done[i][chunk] = true;
                        --left;
                    }
                if (left > 0 && is_ended(pause)) return;
            }
        } catch (const std::exception& error) {
            const std::lock_guard<std::mutex> lock(mutex_);
            problem_ = error.what();
            is_damaged_.store(true, std::memory_order_release);
        }
    }

    bool is_ended(std::chrono::milliseconds wait) {
        std::unique_lock<std::mutex> lock(mutex_);
        return wake_.wait_for(lock, wait, [&] { return ended_; });
    }

    std::vector<const CheckedFile*> files_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    bool ended_ = false;
    std::atomic<bool> is_damaged_{false};
    std::string problem_;
    std::thread thread_;
};

}  // namespace slipway::detail
