#!/bin/sh
# Stands in for an agent: says what it was asked, in one line.
printf 'asked to: %s\n' "$(printf '%s' "$1" | tr '\n' ' ')"
