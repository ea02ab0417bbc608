#!/usr/bin/env bash
# The recorded run: the whole pipeline on this machine's GPUs, measured. Needs
# pipedeck, pipedeck-gpu and versitygw in --bin, python3 with torch, transformers
# and safetensors, and tmux for the console.
#
#   ./run.sh --bin ../../bin --out /tmp/recorded      all parts, about ten minutes
#   ./run.sh --help                                    the parts one by one
exec python3 "$(dirname "$0")/run.py" "$@"
