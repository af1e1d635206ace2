// A reader of JSON: of the manifest of an artifact, and of the description of a prepared one.
#pragma once

#include <cctype>
#include <charconv>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

namespace slipway::detail {

/// A JSON value. Whatever asks a value for what it is not gets std::runtime_error with the path of the value.
class Json {
 public:
    using Array = std::vector<Json>;
    using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the text

    /// Parse a whole text; `name` is what errors call it. Refuses duplicate keys and deep nesting.
    static Json parse(std::string_view text, const std::string& name);

    bool is_null() const { return is<std::nullptr_t>(); }
    bool is_text() const { return is<std::string>(); }
    bool is_integer() const { return is<int64_t>(); }
    bool is_real() const { return is<double>(); }
    bool is_list() const { return is<Array>(); }
    bool is_object() const { return is<Object>(); }
    const std::string& text() const { return get<std::string>("a text"); }
    int64_t integer() const { return get<int64_t>("an integer"); }
    bool boolean() const { return get<bool>("true or false"); }
    const Array& array() const { return get<Array>("a list"); }
    const Object& object() const { return get<Object>("an object"); }
    double real() const { return get<double>("a fraction"); }
    /// An integer that is not negative, as a size or a place in a file must be.
    uint64_t size() const {
        if (integer() < 0) throw std::runtime_error(path_ + " is negative");
        return static_cast<uint64_t>(integer());
    }

    /// The value of a key that must be there.
    const Json& at(std::string_view key) const {
        if (const Json* found = find(key)) return *found;
        throw std::runtime_error(path_ + " has no " + std::string(key));
    }
    /// The value of a key, or nullptr if the key is missing or its value is null.
    const Json* find(std::string_view key) const {
        for (const auto& [name, value] : object())
            if (name == key) return value.is_null() ? nullptr : &value;
        return nullptr;
    }
    const std::string& path() const { return path_; }

 private:
    class Parser;

    template <typename Type>
    bool is() const {
        return std::holds_alternative<Type>(value_);
    }
    template <typename Type>
    const Type& get(const char* wanted) const {
        if (const Type* found = std::get_if<Type>(&value_)) return *found;
        throw std::runtime_error(path_ + " is not " + wanted);
    }

    std::variant<std::nullptr_t, bool, int64_t, double, std::string, Array, Object> value_ = nullptr;
    std::string path_;
};

class Json::Parser {
 public:
    Parser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

    Json whole() {
        Json parsed = value(name_, 0);
        skip_spaces();
        if (at_ != text_.size()) fail("more text behind its end");
        return parsed;
    }

 private:
    static constexpr int deepest = 64;

    [[noreturn]] void fail(const std::string& problem) const {
        throw std::runtime_error(name_ + " is no JSON: " + problem + " at byte " + std::to_string(at_));
    }

    void skip_spaces() {
        while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos)
            ++at_;
    }
    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool take(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }
    void expect(std::string_view word) {
        if (!take(word)) fail("no " + std::string(word));
    }

    Json value(const std::string& path, int depth) {
        if (depth > deepest) fail("too many levels");
        skip_spaces();
        Json json;
        json.path_ = path;
        if (peek() == '{')
            json.value_ = object(path, depth);
        else if (peek() == '[')
            json.value_ = array(path, depth);
        else if (peek() == '"')
            json.value_ = string();
        else if (take("true"))
            json.value_ = true;
        else if (take("false"))
            json.value_ = false;
        else if (!take("null"))
            number(json);
        return json;
    }

    Object object(const std::string& path, int depth) {
        Object found;
        expect("{");
        skip_spaces();
        if (take("}")) return found;
        do {
            skip_spaces();
            std::string key = string();
            for (const auto& entry : found)
                if (entry.first == key) fail("a second \"" + key + "\"");
            skip_spaces();
            expect(":");
            Json member = value(path + "." + key, depth + 1);
            found.emplace_back(std::move(key), std::move(member));
            skip_spaces();
        } while (take(","));
        expect("}");
        return found;
    }

    Array array(const std::string& path, int depth) {
        Array found;
        expect("[");
        skip_spaces();
        if (take("]")) return found;
        do {
            found.push_back(value(path + "[" + std::to_string(found.size()) + "]", depth + 1));
            skip_spaces();
        } while (take(","));
        expect("]");
        return found;
    }

    std::string string() {
        expect("\"");
        std::string found;
        while (peek() != '"') {
            if (at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) fail("an open text");
            if (text_[at_] != '\\')
                found += text_[at_++];
            else
                escaped(found);
        }
        ++at_;
        return found;
    }

    void escaped(std::string& found) {
        static constexpr std::string_view letters = "\"\\/bfnrt", meant = "\"\\/\b\f\n\r\t";
        ++at_;
        if (take("u")) {
            uint32_t point = hexadecimal();
            if (point >= 0xD800 && point < 0xDC00) {  // the first half of a pair
                expect("\\u");
                const uint32_t second = hexadecimal();
                if (second < 0xDC00 || second > 0xDFFF) fail("half a pair");
                point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00);
            } else if (point >= 0xDC00 && point <= 0xDFFF) {
                fail("half a pair");
            }
            append_utf8(found, point);
            return;
        }
        const size_t which = letters.find(peek());
        if (at_ >= text_.size() || which == std::string_view::npos) fail("an unknown escape");
        found += meant[which];
        ++at_;
    }

    uint32_t hexadecimal() {
        uint32_t found = 0;
        const char* begin = text_.data() + at_;
        if (text_.size() - at_ < 4 || std::from_chars(begin, begin + 4, found, 16).ptr != begin + 4)
            fail("no four hexadecimal digits");
        at_ += 4;
        return found;
    }

    static void append_utf8(std::string& found, uint32_t point) {
        const auto tail = [&](int shift) { found += static_cast<char>(0x80 | ((point >> shift) & 0x3F)); };
        if (point < 0x80) {
            found += static_cast<char>(point);
        } else if (point < 0x800) {
            found += static_cast<char>(0xC0 | (point >> 6));
            tail(0);
        } else if (point < 0x10000) {
            found += static_cast<char>(0xE0 | (point >> 12));
            tail(6);
            tail(0);
        } else {
            found += static_cast<char>(0xF0 | (point >> 18));
            tail(12);
            tail(6);
            tail(0);
        }
    }

    void number(Json& json) {
        const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
        int64_t whole = 0;
        double real = 0;
        if (peek() != '-' && !std::isdigit(static_cast<unsigned char>(peek()))) fail("no value");
        const auto as_real = std::from_chars(begin, end, real);
        const auto as_whole = std::from_chars(begin, end, whole);
        if (as_real.ec != std::errc()) fail("no number that fits");
        if (as_whole.ec == std::errc() && as_whole.ptr >= as_real.ptr)
            json.value_ = whole;
        else
            json.value_ = real;
        at_ += static_cast<size_t>(as_real.ptr - begin);
    }

    std::string_view text_;
    std::string name_;
    size_t at_ = 0;
};

inline Json Json::parse(std::string_view text, const std::string& name) {
    return Parser(text, name).whole();
}

}  // namespace slipway::detail
