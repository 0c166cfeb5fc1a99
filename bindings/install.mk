# What `make install` puts where, and the libraries of it: libdxpu is dxpu.h, libdxpu-NAME the
# binding of that name, each static and shared.  INLINE ones have no functions to put into one.
LIBDIR = $(PREFIX)/lib
# Before 1.0 a minor version may change the ABI (spec/versions.md), afterwards only a major one.
SONUM := $(shell echo $(VERSION) | sed -E 's/^(0\.[0-9]+|[0-9]+).*/\1/')
public = $(filter-out $(addprefix bindings/$1/,$(private/bindings/$1)),$(wildcard bindings/$1/*.h))
# The bindings with a public header.
BOUND := $(foreach b,$(patsubst bindings/%/room.mk,%,$(wildcard bindings/*/room.mk)),$(if $(call \
  public,$b),$b))
INLINE := acceptor zlib
SHARED := $(filter-out $(INLINE),$(BOUND))
# $(call lib,BINDING): sodium is dxpu-sodium, the name of its library and its .pc file
lib = dxpu-$(subst _,-,$1)
needs = $(foreach u,$(uses/bindings/$1),$(call lib,$(notdir $u)))
deeply = $(foreach u,$(call deep,bindings/$1),$(call lib,$(notdir $u)))

FLAGS/pic = -fPIC -fstack-protector-strong -fstack-clash-protection -U_FORTIFY_SOURCE \
            -D_FORTIFY_SOURCE=2
# Without a library of its own: the CRC by tables.  Included in itself because clang reports inline
# functions of the file it compiles, not of a header, when nothing calls them.
build/pic/dxpu_core.o: dxpu.h
	$(call say,CC,$<)$(call compile,/pic) -DDXPU_IMPLEMENTATION -include $< \
	  -x c -c -o $@ $<

# $(call library,NAME,OBJECTS,PUBLIC HEADERS,NAMES OF OTHERS,LIBRARIES): both kinds export what the
# public headers declare, and nothing else.
define library
build/lib/lib$1.so.$(SONUM): $2 $3 $(patsubst %,build/lib/lib%.so.$(SONUM),$4)
	@mkdir -p $$(@D) && nm -gj --defined-only $2 | LC_ALL=C sort -u >build/lib/$1.all
	@grep -ohw 'dxpu_[a-z0-9_]*' $3 | LC_ALL=C sort -u | LC_ALL=C comm -12 - build/lib/$1.all \
	  >build/lib/$1.names
	@(echo 'DXPU_$(SONUM) { global:'; sed 's/$$$$/;/' build/lib/$1.names; echo 'local: *; };') \
	  >build/lib/$1.map
	$$(call say,LD,$$@)$$(CC) $$(CFLAGS) $$(FLAGS/pic) -shared -pthread -o $$@ $2 \
	  -Wl,-soname,lib$1.so.$(SONUM),--version-script=build/lib/$1.map,-z,defs,-z,relro,-z,now \
	  -Wl,--as-needed $(patsubst %,build/lib/lib%.so.$(SONUM),$4) $5
build/lib/lib$1.a: build/lib/lib$1.so.$(SONUM)
	$$(call say,AR,$$@)$$(LD) -r -o build/lib/$1.o $2 && \
	  objcopy --keep-global-symbols=build/lib/$1.names build/lib/$1.o && rm -f $$@ && \
	  $$(AR) rcsD $$@ build/lib/$1.o
endef
# $(call bound,BINDING)
define bound
build/pic/bindings/$1/pure.o: bindings/$1/dxpu_$1.h dxpu.h | build/include/dxpu.h
	$$(call say,CC,$$<)$$(call compile,/pic) $$(call inc,bindings/$1) \
	  -D$(pure/bindings/$1)_IMPLEMENTATION -x c -c -o $$@ $$<
$(call library,$(call lib,$1),$(if $(pure/bindings/$1),build/pic/bindings/$1/pure.o,$(patsubst \
  %.c,build/pic/%.o,$(call src,bindings/$1))),$(call public,$1),$(call deeply,$1) \
  dxpu,$(libs/bindings/$1))
endef
$(eval $(call library,dxpu,build/pic/dxpu_core.o,dxpu.h,,))
$(foreach b,$(SHARED),$(eval $(call bound,$b)))
LIBRARIES := $(patsubst %,build/lib/lib%.a,dxpu $(foreach b,$(SHARED),$(call lib,$b)))

# Files that name the place or the version: written at each installation.
NAMES := dxpu $(foreach b,$(BOUND),$(call lib,$b))
room_of = bindings/$(subst -,_,$(patsubst dxpu-%,%,$1))
build/install/dxpu.pc: WHAT = PCIe over datagrams: dxpu.h and its library
# Its functions are inline: who uses it calls the library below it, and has dxpu.h compiled itself.
build/install/dxpu-zlib.pc: MORE = $(if $(DEFLATE), -DDXPU_ZLIB_USE_LIBDEFLATE=1)
build/install/dxpu-zlib.pc: ASKS = $(pc/bindings/zlib)
$(NAMES:%=build/install/%.pc): build/install/%.pc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$${prefix}/include' '' \
	  'Name: $*' "Description: $(or $(WHAT),$$(sed -n '1s/^# //p' $(call room_of,$*)/room.mk))" \
	  'Version: $(VERSION)' 'Requires: $(or $(ASKS),$(if $(filter-out dxpu,$*),$(or $(call \
	  needs,$(notdir $(call room_of,$*))),dxpu)))' \
	  'Requires.private: $(if $(ASKS),,$(pc/$(call room_of,$*)))' \
	  'Libs: $(if $(filter-out $(INLINE:%=dxpu-%),$*),-L$${libdir} -l$*)' \
	  'Libs.private: $(if $(pc/$(call room_of,$*)),,$(libs/$(call room_of,$*)))' \
	  'Cflags: -I$${includedir}$(MORE)' | sed 's/ *$$//' >$@
# $(call target,CMAKE'S NAME,FILE,ROOM,WHAT IT NEEDS)
target = echo '  _dxpu_library($1 $2 NEEDS $4$(if $(libs/$3), LIBS $(libs/$3)))';
# What an inline binding needs, when that is not libdxpu.
below/zlib = dxpu::header $(if $(DEFLATE),deflate,z)
build/install/dxpu-config.cmake: bindings/dxpu-config.cmake FORCE
	@mkdir -p $(@D)
	@($(call target,dxpu,dxpu,,dxpu::header)$(foreach b,$(SHARED),$(call target,$(subst \
	  _,-,$b),$(call lib,$b),bindings/$b,dxpu::dxpu $(foreach u,$(uses/bindings/$b),dxpu::$(subst \
	  _,-,$(notdir $u)))))$(foreach b,$(INLINE),echo '  _dxpu_inline($(subst _,-,$b) $(or \
	  $(below/$b),dxpu::dxpu))';)) >$@.libraries
	@sed -e 's,@INCLUDE@,$(shell realpath -m --relative-to=$(LIBDIR)/cmake/dxpu $(PREFIX)/include),' \
	  -e 's/@SONUM@/$(SONUM)/' \
	  -e 's/@DEFLATE@/$(if $(DEFLATE),1,0)/' -e '/@LIBRARIES@/{r $@.libraries' -e 'd}' $< >$@
build/install/dxpu-config-version.cmake: bindings/dxpu-config-version.cmake FORCE
	@mkdir -p $(@D) && sed -e 's/@VERSION@/$(VERSION)/' -e 's/@SONUM@/$(SONUM)/' $< >$@
UNITS := $(notdir $(wildcard examples/*/*.service))
$(UNITS:%=build/install/%): build/install/%: FORCE
	@mkdir -p $(@D) && sed 's,/usr/local/bin,$(PREFIX)/bin,' examples/*/$* >$@

# MODE:SOURCE:DESTINATION of each file; of a link its text is the source.
put = $(foreach f,$2,$1:$f:$3/$(notdir $f))
PUT = $(call put,644,dxpu.h $(foreach b,$(BOUND),$(call public,$b)),$(PREFIX)/include) \
  $(call put,644,$(LIBRARIES),$(LIBDIR)) \
  $(foreach l,$(LIBRARIES:build/lib/%.a=%),link:$l.so.$(VERSION):$(LIBDIR)/$l.so.$(SONUM) \
    link:$l.so.$(SONUM):$(LIBDIR)/$l.so 755:build/lib/$l.so.$(SONUM):$(LIBDIR)/$l.so.$(VERSION)) \
  $(call put,755,build/libdxpu-inject.so,$(LIBDIR)) \
  $(call put,644,$(NAMES:%=build/install/%.pc),$(LIBDIR)/pkgconfig) \
  $(call put,644,$(CMAKE:%=build/install/%),$(LIBDIR)/cmake/dxpu) \
  $(call put,755,$(INSTALLED:%=build/%),$(PREFIX)/bin) \
  644:examples/cli/completion/dxpu.bash:$(BASH_AT)/dxpu \
  644:examples/cli/completion/dxpu.fish:$(FISH_AT)/dxpu.fish \
  $(foreach p,$(filter dxpu-%,$(INSTALLED)),link:dxpu:$(BASH_AT)/$p \
    link:dxpu.fish:$(FISH_AT)/$p.fish) \
  $(call put,644,examples/cli/completion/_dxpu,$(PREFIX)/share/zsh/site-functions) \
  $(call put,644,$(wildcard examples/*/*.1),$(PREFIX)/share/man/man1) \
  $(call put,644,$(wildcard bindings/*.3 bindings/*/*.3),$(PREFIX)/share/man/man3) \
  $(call put,644,LICENSE,$(PREFIX)/share/doc/dxpu) \
  $(call put,644,$(wildcard spec/*.md spec/*.yaml),$(PREFIX)/share/doc/dxpu/spec) \
  $(call put,644,$(wildcard examples/*/*.conf),$(PREFIX)/share/doc/dxpu/examples) \
  $(call put,644,$(wildcard examples/embed/*.c*),$(PREFIX)/share/doc/dxpu/examples/embed) \
  $(call put,644,$(UNITS:%=build/install/%),$(PREFIX)/lib/systemd/system)
# Where shells look for the completion of a program of that name.
BASH_AT = $(PREFIX)/share/bash-completion/completions
FISH_AT = $(PREFIX)/share/fish/vendor_completions.d
CMAKE := dxpu-config.cmake dxpu-config-version.cmake

## install    libraries, headers, programs, manuals, completion, units; DESTDIR, PREFIX, LIBDIR
install: all $(LIBRARIES) $(addprefix build/install/,$(NAMES:%=%.pc) $(CMAKE) $(UNITS))
	@set -e; many=; put() { [ -z "$$many" ] || install -Dm $${to%%:*} -t "$(DESTDIR)$${to#*:}" \
	  $$many; many=; }; for e in $(PUT) end; do IFS=:; set -- $$e; unset IFS; \
	  [ "$$1:$${3%/*}" = "$$to" ] || put; to=$$1:$${3%/*}; [ $$1 = end ] || echo "  PUT $$3"; \
	  if [ $$1 = link ]; then ln -sf $$2 "$(DESTDIR)$$3"; \
	  elif [ "$${2##*/}" = "$${3##*/}" ]; then many="$$many $$2"; \
	  else install -Dm $$1 $$2 "$(DESTDIR)$$3"; fi; done
	@[ "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig

## uninstall  remove what install has put there: with the same tree, DESTDIR, PREFIX and LIBDIR
uninstall:
	@rm -f $(foreach e,$(PUT),"$(DESTDIR)$(lastword $(subst :, ,$e))")
	@rmdir $(addprefix $(DESTDIR),$(LIBDIR)/cmake/dxpu $(PREFIX)/share/doc/dxpu/examples/embed \
	  $(PREFIX)/share/doc/dxpu/examples $(PREFIX)/share/doc/dxpu/spec \
	  $(PREFIX)/share/doc/dxpu) 2>/dev/null || :

## dist       archive of the last commit, and one file per binding, reproducible: build/dist
NAME = dxpu-$(VERSION)
LEVEL = 9
TAR = tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mode=a+rX,u+w,go-w
dist:
	@git rev-parse -q --verify HEAD >/dev/null || \
	  { echo 'make dist: this is not a clone; get one with git clone' >&2; exit 2; }
	rm -rf build/dist && mkdir -p build/dist
	git -c tar.umask=0022 archive --prefix=$(NAME)/ HEAD | tee build/dist/$(NAME).tar | \
	  tar -x -C build/dist
	$(PYTHON) build/dist/$(NAME)/bindings/amalgamate.py build/dist/$(NAME)-single
	cd build/dist && $(TAR) --mtime=@$$(git log -1 --format=%ct) -cf $(NAME)-single.tar \
	  $(NAME)-single && rm -r $(NAME) && gzip -$(LEVEL)n $(NAME).tar $(NAME)-single.tar && \
	  sha256sum *.gz >SHA256SUMS

.PHONY: FORCE
.PHONY: install uninstall dist
