#!/bin/sh
# Compile native/ for aarch64, with warnings as errors, and run the fuzz program by qemu: what it makes must be to the bit
# what it makes on this machine. Libraries of that architecture are unpacked to build/, not installed. What is missing is
# installed where root may, and otherwise said: then this is skipped.
set -eu
flags="-std=c11 -O3 -Wall -Wextra -Werror -ffp-contract=off -fno-trapping-math -fno-math-errno"
program="-DMUTATE -DFUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION native/*.c native/fuzz/fuzz.c -ljpeg -ldeflate -lm"
packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
folder=$PWD/build/aarch64

skip() {
	echo "test-aarch64 is skipped: $1"
	exit 0
}

is_there() {
	command -v aarch64-linux-gnu-gcc >/dev/null && command -v qemu-aarch64-static >/dev/null
}

# apt-get with lists of its own, so that the system's architectures stay as they are.
apt_arm() {
	apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State::Lists="$folder/apt" \
		-o Dir::Cache="$folder/apt" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root "$@"
}

if ! is_there && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	# shellcheck disable=SC2086  # several words
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends $packages; } \
		>/dev/null || true
fi
is_there || skip "its compiler and qemu are missing: sudo apt-get install $packages"
if [ ! -e "$folder/usr/lib" ]; then
	mkdir -p "$folder/apt/partial"
	{ apt_arm update && (cd "$folder/apt" && apt_arm download libjpeg62-turbo-dev libdeflate-dev); } ||
		skip "Debian's libjpeg62-turbo-dev and libdeflate-dev for arm64 cannot be fetched."
	for package in "$folder"/apt/*.deb; do dpkg-deb -x "$package" "$folder"; done
fi

arm="-I$folder/usr/include -I$folder/usr/include/aarch64-linux-gnu -L$folder/usr/lib/aarch64-linux-gnu"
# shellcheck disable=SC2086
{
	(cd "$folder" && aarch64-linux-gnu-gcc $flags $arm -fPIC -c ../../native/*.c) # as a library
	aarch64-linux-gnu-gcc $flags $arm -static -o "$folder/fuzz" $program
	cc $flags -o "$folder/here" $program
}
there=$(qemu-aarch64-static "$folder/fuzz" 1000 build/fuzz/seeds/*)
here=$("$folder/here" 1000 build/fuzz/seeds/*)
echo "aarch64: $there"
[ "$there" = "$here" ] || {
	echo "error: aarch64 makes something else than this machine, whose fuzz program prints: $here" >&2
	exit 1
}
