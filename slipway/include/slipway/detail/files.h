// Files of a prepared artifact: mapped, and checked against the digests in its index.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "slipway/detail/error.h"
#include "slipway/detail/json.h"
#include "slipway/detail/sha256.h"

namespace slipway::detail {

/// A file mapped read-only, shared with all processes that map it.
class MappedFile {
 public:
    explicit MappedFile(const std::filesystem::path& path) : path_(path.string()) {
        file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        struct stat found{};
        if (file_ < 0 || fstat(file_, &found) != 0) fail("read");
        size_ = static_cast<size_t>(found.st_size);
        if (size_ == 0) return;  // which nothing can map
        void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file_, 0);
        if (mapped == MAP_FAILED) fail("mapped");
        begin_ = static_cast<uint8_t*>(mapped);
    }
    ~MappedFile() {
        if (begin_ != nullptr) munmap(begin_, size_);
        close(file_);
    }
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    uint8_t* begin() const { return begin_; }
    size_t size() const { return size_; }
    const std::string& path() const { return path_; }
    std::string_view text() const { return {reinterpret_cast<const char*>(begin_), size_}; }

    /// Read from the file and not from the mapping, which would end the process if the file had become
    /// shorter.
    bool read(size_t at, size_t size, std::vector<uint8_t>& into) const {
        into.resize(size);
        for (size_t done = 0; done < size;) {
            const ssize_t got = pread(file_, into.data() + done, size - done, static_cast<off_t>(at + done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            done += static_cast<size_t>(got);
        }
        return true;
    }

 private:
    [[noreturn]] void fail(const char* verb) {
        const int reason = errno;
        if (file_ >= 0) close(file_);
        const std::string why = std::generic_category().message(reason);
        throw Error(reason == ENOENT ? "artifact_damaged" : "artifact_invalid",
                    path_ + " cannot be " + verb + ": " + why);
    }

    std::string path_;
    int file_ = -1;
    uint8_t* begin_ = nullptr;
    size_t size_ = 0;
};

/// A path of the index: below the artifact's folder, and nowhere else.
inline std::filesystem::path below(const std::filesystem::path& root, const Json& relative) {
    const std::filesystem::path path(relative.text());
    bool leads_out = path.empty() || path.is_absolute();
    for (const auto& part : path) leads_out |= part == "..";
    if (leads_out)
        throw Error("artifact_invalid", relative.path() + " leads out of the artifact: " + relative.text());
    return root / path;
}

[[noreturn]] inline void damaged(const std::string& what) {
    throw Error("artifact_damaged", what + ": prepare the artifact again");
}

/// Refuse a file that has not the size and the digest that the index gives.
inline void require_digest(const std::filesystem::path& root, const Json& entry) {
    const MappedFile file(below(root, entry.at("path")));
    if (file.size() != entry.at("size").size())
        damaged(file.path() + " has " + std::to_string(file.size()) + " bytes, not " +
                std::to_string(entry.at("size").size()));
    if (Sha256::hexadecimal(Sha256::of(file.begin(), file.size())) != entry.at("sha256").text())
        damaged(file.path() + " has another digest than prepared.json gives");
}

/// A mapped file whose chunks can be checked one by one, against a list of digests that is itself checked
/// here.
class CheckedFile {
 public:
    CheckedFile(const std::filesystem::path& root, const Json& entry, size_t chunk)
        : file(below(root, entry.at("path"))), leaves_(below(root, entry.at("leaves"))), chunk_(chunk) {
        if (file.size() != entry.at("size").size())
            damaged(file.path() + " has " + std::to_string(file.size()) + " bytes, not " +
                    std::to_string(entry.at("size").size()));
        if (leaves_.size() != chunks() * sizeof(Sha256::Digest))
            damaged(leaves_.path() + " has " + std::to_string(leaves_.size()) + " bytes");
        Sha256 root_digest;
        uint8_t head[9] = {1};  // the mark of a root, and the file's size
        for (int i = 0; i < 8; ++i) head[1 + i] = static_cast<uint8_t>(uint64_t{file.size()} >> (8 * i));
        root_digest.update(head, sizeof head);
        root_digest.update(leaves_.begin(), leaves_.size());
        if (Sha256::hexadecimal(root_digest.finish()) != entry.at("root").text())
            damaged(leaves_.path() + " has another digest than prepared.json gives");
    }

    size_t chunks() const { return (file.size() + chunk_ - 1) / chunk_; }

    /// Read a chunk into `scratch`; throws Error if it is not the one that was prepared.
    void require_chunk(size_t which, std::vector<uint8_t>& scratch) const {
        const size_t begin = which * chunk_, size = std::min(chunk_, file.size() - begin);
        if (!file.read(begin, size, scratch))
            damaged(file.path() + " has become unreadable at byte " + std::to_string(begin));
        Sha256 digest;
        const uint8_t leaf = 0;  // its mark
        digest.update(&leaf, 1);
        digest.update(scratch.data(), size);
        const auto found = digest.finish();
        if (std::memcmp(found.data(), leaves_.begin() + which * found.size(), found.size()) != 0)
            damaged(file.path() + " is damaged between bytes " + std::to_string(begin) + " and " +
                    std::to_string(begin + size));
    }

    /// The chunks of which a page is in memory, so that a call may have used it.
    std::vector<size_t> resident_chunks() const {
        const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        std::vector<unsigned char> pages((file.size() + page - 1) / page, 1);
        mincore(file.begin(), file.size(), pages.data());  // where it fails, all of them count
        std::vector<size_t> found;
        for (size_t chunk = 0; chunk < chunks(); ++chunk) {
            const auto begin = pages.begin() + static_cast<ptrdiff_t>(chunk * chunk_ / page);
            const auto end =
                pages.begin() + static_cast<ptrdiff_t>(std::min(pages.size(), (chunk + 1) * chunk_ / page));
            if (std::any_of(begin, end, [](unsigned char flags) { return flags & 1; }))
                found.push_back(chunk);
        }
        return found;
    }

    const MappedFile file;

 private:
    const MappedFile leaves_;
    const size_t chunk_;
};

}  // namespace slipway::detail
