module github.com/fresh-kcm/fresh-kcm/hack/tools/staging

go 1.26.0
