# The command line as an image: one static binary, certificates, no shell, no root.
#
#	docker build --tag locker .
#	docker run --rm --env LOCKER_URL=redis://db:6379 locker list
#
# To run commands under a lock, copy the binary into the image that has them:
#
#	COPY --from=ghcr.io/lockerproject/locker /usr/local/bin/locker /usr/local/bin/
#
# It needs BuildKit, which Docker has used by default since version 23.

# "build" compiles the binary; "prebuilt" takes those of a release from the context.
ARG BINARY=build

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG TARGETOS
ARG TARGETARCH
# The version is Git's, so .git is in the context.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags='-s -w' -o /out/locker ./cmd/locker

FROM scratch AS prebuilt
ARG TARGETPLATFORM
COPY $TARGETPLATFORM/locker /out/locker

FROM $BINARY AS binary

FROM gcr.io/distroless/static-debian12:nonroot
LABEL org.opencontainers.image.title="locker" \
      org.opencontainers.image.description="Distributed locks on the store you already run" \
      org.opencontainers.image.source="https://github.com/lockerproject/locker" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=binary /out/locker /usr/local/bin/locker
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/locker"]
