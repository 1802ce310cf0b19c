#!/bin/sh
# Compiles the programs for BMv2 with the p4c that is on PATH, into compiled/. What is
# committed there is used as it is: nobody needs a P4 compiler to build inabench.
set -eu
cd "$(dirname "$0")"
compiler=$(command -v p4c-bm2-ss) || {
	echo "compile.sh: p4c-bm2-ss is not on PATH: install p4lang's p4c (package p4lang-p4c of p4lang's repositories, or from source)" >&2
	exit 5
}
mkdir -p compiled
for program in ina_v1model ina_chip; do
	"$compiler" --arch v1model -o compiled/$program.json \
		--p4runtime-files compiled/$program.p4info.txtpb $program.p4
	# Times and paths would make every build another file.
	sed -i "s|$(pwd)/||g" compiled/$program.json
	gzip -9 -n -f compiled/$program.json
	printf '{\n\t"source": "%s",\n\t"compiler": "%s"\n}\n' \
		"$(sha256sum $program.p4 | cut -d' ' -f1)" \
		"$("$compiler" --version 2>&1 | tr -s '\n' ' ' | sed 's|^.*p4c-bm2-ss |p4c-bm2-ss |; s/ *$//')" > compiled/$program.build.json
done
