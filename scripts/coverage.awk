# Reads what llvm-cov says of lines (lcov), and the sources that it names, and counts the lines of the module alone: neither
# those of tests nor those that are there for the simulated server. Says how many lines of each file were run, and how many were
# not for which of the reasons in a file; or, with list=1, which were not, each behind the function that it is in.
#
#   awk -f scripts/coverage.awk -v root=PWD/ -v reasons=FILE [-v list=1] [-v least=PERCENT] LCOV     status 1 below PERCENT

# Notes the reason of each function: a comment stands in front of the files, with functions, that it is the reason of.
function read_reasons(path,    line, part, parts, reason) {
    while ((getline line < path) > 0) {
        if (line ~ /^#/) {
            reason = substr(line, 3)
        } else if (line) {
            parts = split(line, part, " ")
            for (; parts > 1; parts--) reason_of[part[1] " " part[parts]] = reason
            if (!(reason in counted)) {
                counted[reason] = 0
                ordered[++reason_count] = reason
            }
        }
    }
    close(path)
}

# Notes of each line of a source whether it is one of the module's, and the function that begins last before it.
function look_through(path,    line, number, outside, indent, name, rest) {
    split("", is_outside); split("", function_of); split("", text)
    while ((getline line < path) > 0) {
        number++
        if (!outside && line ~ /^ *#\[cfg\((test|(any|all)\(test, .*\)|feature = "simulated")\)\]$/) {
            outside = 1
            indent = line
            sub(/#.*/, "", indent)
        }
        if (line !~ /^ *\/\// && match(line, /(^|[ (])fn [a-z_0-9]+/)) {
            name = substr(line, RSTART, RLENGTH)
            sub(/.*fn /, "", name)
        }
        is_outside[number] = outside
        function_of[number] = name
        text[number] = line
        # As rustfmt leaves an item, this is where it ends.
        rest = substr(line, length(indent) + 1)
        if (outside && index(line, indent) == 1 && rest ~ /^(}|[^ #\/].*;$)/) outside = 0
    }
    close(path)
    if (!number) {
        printf "scripts/coverage: no source %s\n", path > "/dev/stderr"
        failed = 1
    }
}

BEGIN { read_reasons(reasons) }

/^SF:/ {
    path = substr($0, 4)
    look_through(path)
    sub("^" root, "", path)
    lines = run = 0
}

/^DA:/ {
    split(substr($0, 4), at, ",")
    if (is_outside[at[1]]) next
    lines++
    if (at[2] > 0) {
        run++
    } else {
        line = text[at[1]]
        sub(/^ */, "", line)
        line = sprintf("%s:%d: %s: %s\n", path, at[1], function_of[at[1]], line)
        if (list) printf "%s", line
        if ((path " " function_of[at[1]]) in reason_of) {
            counted[reason_of[path " " function_of[at[1]]]]++
        } else {
            others++
            unexplained = unexplained line
        }
    }
}

/^end_of_record/ && lines {
    if (!list) printf "%-44s %5d of %5d lines  %5.1f %%\n", path, run, lines, 100 * run / lines
    all_lines += lines
    all_run += run
}

END {
    if (!all_lines) failed = 1
    else if (!list) {
        printf "%-44s %5d of %5d lines  %5.1f %%\n\nnot run:\n", "all", all_run, all_lines, 100 * all_run / all_lines
        for (number = 1; number <= reason_count; number++) {
            printf "%5d  %s\n", counted[ordered[number]], ordered[number]
        }
        printf "%5d  Without a reason.\n%s", others, unexplained
    }
    exit failed || 100 * all_run < least * all_lines
}
