module github.com/fresh-kcm/fresh-kcm/hack/tools/suites

go 1.26.0
